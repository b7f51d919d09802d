"""boto3 or the AWS CLI beside our client on one bucket, for tests/integration/other_clients.cpp.

usage: other_client.py boto3|cli write|read|list ENDPOINT BUCKET PREFIX KEY-IN-HEX ...      exit status 77: it is not installed
write: every key PREFIX/KEY gets the bytes "KEY by boto3" (or cli); the last key of boto3 gets 12 MiB in parts.
read:  every key must hold "KEY by batchweave"; list: PREFIX/ must hold these keys and no others. A difference is printed and ends with 1.
"""
import os
import shutil
import subprocess
import sys
import tempfile

who, what, endpoint, bucket, prefix = sys.argv[1:6]
keys = [bytes.fromhex(k).decode("utf-8") for k in sys.argv[6:]]


class Boto3:
    def __init__(self):
        try:
            import boto3
            import botocore.config
        except ImportError as e:
            print(e, file=sys.stderr)
            sys.exit(77)
        settings = {"s3": {"addressing_style": "path"}, "signature_version": "s3v4"}
        try:  # newer versions send a checksum trailer, which some stores refuse
            config = botocore.config.Config(request_checksum_calculation="when_required", response_checksum_validation="when_required", **settings)
        except TypeError:
            config = botocore.config.Config(**settings)
        self.s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config)

    def put(self, key, data):
        self.s3.put_object(Bucket=bucket, Key=key, Body=data)

    def put_large(self, key, data):
        import io

        from boto3.s3.transfer import TransferConfig

        self.s3.upload_fileobj(io.BytesIO(data), bucket, key, Config=TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20))

    def get(self, key):
        return self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()

    def list(self, start):
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=start, PaginationConfig={"PageSize": 3})
        return [o["Key"] for page in pages for o in page.get("Contents", [])]


class Cli:
    def __init__(self):
        if not shutil.which("aws"):
            print("there is no aws command", file=sys.stderr)
            sys.exit(77)
        os.environ.update(AWS_REQUEST_CHECKSUM_CALCULATION="when_required", AWS_RESPONSE_CHECKSUM_VALIDATION="when_required",
                          AWS_EC2_METADATA_DISABLED="true", AWS_PAGER="")

    def run(self, *arguments):
        return subprocess.run(["aws", "--endpoint-url", endpoint, "s3api", *arguments], check=True, capture_output=True).stdout

    def put(self, key, data):
        with tempfile.NamedTemporaryFile() as f:
            f.write(data)
            f.flush()
            self.run("put-object", "--bucket", bucket, "--key", key, "--body", f.name)

    put_large = put

    def get(self, key):
        with tempfile.NamedTemporaryFile() as f:
            self.run("get-object", "--bucket", bucket, "--key", key, f.name)
            return f.read()

    def list(self, start):
        import json

        out = self.run("list-objects-v2", "--bucket", bucket, "--prefix", start, "--output", "json")
        return [o["Key"] for o in json.loads(out or b"{}").get("Contents") or []]


client = {"boto3": Boto3, "cli": Cli}[who]()
wrong = 0
if what == "list":
    seen, wanted = sorted(client.list(prefix + "/")), sorted(prefix + "/" + k for k in keys)
    if seen != wanted:
        print("listed", [k for k in seen if k not in wanted], "not listed", [k for k in wanted if k not in seen])
        wrong = 1
else:
    for i, key in enumerate(keys):
        if what == "write":
            data = f"{key} by {who}".encode("utf-8")
            if i + 1 == len(keys) and who == "boto3":
                client.put_large(f"{prefix}/{key}", (data + b"\n") * ((12 << 20) // (len(data) + 1) + 1))
            else:
                client.put(f"{prefix}/{key}", data)
        else:
            got, wanted = client.get(f"{prefix}/{key}"), f"{key} by batchweave".encode("utf-8")
            if got[:len(wanted)] != wanted or (len(got) != len(wanted) and i + 1 < len(keys)):
                print(f"{key!r} holds {got[:80]!r}")
                wrong = 1
sys.exit(wrong)
