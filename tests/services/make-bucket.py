"""Makes a bucket on an S3 server, with a signature version 4 and nothing but the standard library.

usage: make-bucket.py ENDPOINT BUCKET     credentials: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
A bucket that is already there is no error.
"""
import datetime
import hashlib
import hmac
import os
import sys
import urllib.error
import urllib.request

endpoint, bucket = sys.argv[1].rstrip("/"), sys.argv[2]
key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
region = os.environ.get("AWS_REGION", "us-east-1")
stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
host, empty = endpoint.split("://", 1)[1], hashlib.sha256(b"").hexdigest()
headers = {"host": host, "x-amz-content-sha256": empty, "x-amz-date": stamp}
names = ";".join(sorted(headers))
canonical = "\n".join(["PUT", f"/{bucket}", "", *(f"{n}:{headers[n]}" for n in sorted(headers)), "", names, empty])
scope = f"{stamp[:8]}/{region}/s3/aws4_request"
to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
signing = ("AWS4" + secret).encode()
for part in scope.split("/"):
    signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
signature = hmac.new(signing, to_sign.encode(), hashlib.sha256).hexdigest()
headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}"
try:
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT", headers=headers), timeout=30)
except urllib.error.HTTPError as e:
    if e.code != 409:
        sys.exit(f"cannot make bucket {bucket} at {endpoint}: {e.code} {e.read(500)!r}")
