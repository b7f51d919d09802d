"""Random S3 requests and the signatures that botocore gives them, for tests/integration/botocore_signatures.cpp.

usage: sign_vectors.py COUNT SEED      exit status 77: botocore is not installed (Debian: python3-botocore, or pip install botocore)
A line for each request, its fields separated by tabs, every text in hexadecimal so that it may hold any byte:
  method authority path query headers payload-hash access-key secret-key token region date key signature
`path` is botocore's encoding of `key`; query and headers are name:value pairs separated by commas.
"""
import random
import sys

try:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
    from botocore.utils import percent_encode
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(77)

count, seed = int(sys.argv[1]), int(sys.argv[2])
draw = random.Random(seed)

PLAIN = "abcXYZ019-._~"
ODD = "abcXYZ019-._~/ !\"#$%&'()*+,:;<=>?@[\\]^`{|}\u00e9\u65e5\U0001f600"


def text(letters, least, most):
    return "".join(draw.choice(letters) for _ in range(draw.randint(least, most)))


def h(s):
    return s.encode("utf-8").hex()


def pairs(items):
    return ",".join(h(n) + ":" + h(v) for n, v in items)


for _ in range(count):
    key = text(ODD, 1, 40).lstrip("/") or "k"
    bucket = text("abcxyz019-", 3, 20)
    authority = draw.choice(["127.0.0.1:9000", "s3.eu-central-1.amazonaws.com", "[::1]:9000", "localhost"])
    scheme = "http"
    path = "/" + bucket + "/" + percent_encode(key, safe="/~")
    query = [(text(PLAIN, 1, 8) if draw.random() < 0.7 else text(ODD, 1, 8), text(ODD, 0, 12)) for _ in range(draw.randint(0, 4))]
    headers = []
    if draw.random() < 0.5:
        first = draw.randint(0, 1 << 40)
        headers.append(("range", f"bytes={first}-{first + draw.randint(0, 1 << 24)}"))
    if draw.random() < 0.3:
        headers.append(("if-none-match", "*"))
    if draw.random() < 0.3:
        headers.append(("if-match", '"' + text("0123456789abcdef", 32, 32) + '"'))
    if draw.random() < 0.3:
        headers.append(("content-md5", text("abcdefABCDEF+/=", 24, 24)))
    for n in range(draw.randint(0, 3)):
        value = text("abc XYZ  019;,=\"", 1, 20).strip() or "v"
        headers.append((f"x-amz-meta-{text('abc', 1, 5)}{n}", value))
    payload = draw.choice(["UNSIGNED-PAYLOAD", text("0123456789abcdef", 64, 64)])
    access, secret = text("ABCDEFGH0123456789", 16, 20), text("abcdefghABCDEFGH0123456789+/", 40, 40)
    token = text("abcABC012+/=", 20, 200) if draw.random() < 0.3 else ""
    region = draw.choice(["us-east-1", "eu-central-1", "cn-north-1", "auto", "x"])
    date = f"20{draw.randint(0, 99):02d}{draw.randint(1, 12):02d}{draw.randint(1, 28):02d}T{draw.randint(0, 23):02d}{draw.randint(0, 59):02d}{draw.randint(0, 59):02d}Z"
    method = draw.choice(["GET", "PUT", "HEAD", "POST", "DELETE"])

    url = f"{scheme}://{authority}{path}"
    if query:
        url += "?" + "&".join(percent_encode(n, safe="-._~") + "=" + percent_encode(v, safe="-._~") for n, v in query)
    request = AWSRequest(method=method, url=url, headers=dict(headers))
    request.headers["Host"] = authority
    request.context["timestamp"] = date
    auth = S3SigV4Auth(Credentials(access, secret, token or None), "s3", region)
    auth._modify_request_before_signing(request)
    for name in ("X-Amz-Content-SHA256",):
        del request.headers[name]
        request.headers[name] = payload
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    print("\t".join([method, h(authority), h(path), pairs(query), pairs(headers), h(payload), h(access), h(secret), h(token), h(region), date, h(key),
                     signature]))
