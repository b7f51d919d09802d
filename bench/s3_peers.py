"""Other S3 clients for bench/s3_client, driven over pipes: each line on stdin is one round, each line on stdout its figures.

usage: s3_peers.py awscrt|obstore|obstore+sha256 ENDPOINT BUCKET PREFIX THREADS [CA_FILE]
  in:   get|put LENGTH IN_FLIGHT SECONDS OBJECT_BYTES
  out:  BYTES REQUESTS WALL CPU P50 P99    (seconds; CPU is user plus system time of this process), or: error TEXT
The first line out is "ready VERSION" or "absent WHY". Packages: python3 -m pip install awscrt obstore
Credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.

Each GET of an object whose content is bench/range_server.hpp's pattern ends in contiguous memory, its length and first bytes are checked.
"""
import asyncio
import os
import struct
import sys
import threading
import time

GOLDEN, MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def pattern_at(offset):
    return struct.pack("<Q", (offset // 8 + 1) * GOLDEN & MASK)


class Round:
    """What one round did, and which range or key comes next."""

    def __init__(self, length, seconds, object_bytes):
        self.length, self.steps = length, max(1, object_bytes // length)
        self.at = 0
        self.latencies = []
        self.seconds = seconds

    def start(self):
        """The clock begins: what a round needs, such as the body of its PUTs, was made before."""
        self.cpu, self.begin = time.process_time(), time.perf_counter()
        self.end = self.begin + self.seconds

    def next_offset(self):
        offset = self.at % self.steps * self.length
        self.at += 1
        return offset

    def check(self, view, offset):
        if len(view) != self.length or bytes(view[:8]) != pattern_at(offset):
            raise ValueError(f"range at {offset}: {len(view)} bytes or wrong first bytes")

    def going(self):
        return time.perf_counter() < self.end

    def figures(self):
        wall, cpu = time.perf_counter() - self.begin, time.process_time() - self.cpu
        self.latencies.sort()
        n = len(self.latencies)
        at = lambda p: self.latencies[max(0, -(-n * p // 100) - 1)]
        return f"{n * self.length} {n} {wall:.6f} {cpu:.6f} {at(50):.6f} {at(99):.6f}"


class Obstore:
    """Rust's object_store. Its PUTs go without any check of their bytes, or with the only checksum that it offers."""

    def __init__(self, endpoint, bucket, prefix, threads, ca_file, **more):
        os.environ["TOKIO_WORKER_THREADS"] = str(threads)
        import obstore
        from obstore.store import S3Store

        self.obstore, self.version = obstore, "obstore " + obstore.__version__
        # Its own option for a private root certificate differs between versions: a benchmark on loopback does without the check.
        options = {"allow_http": True, "allow_invalid_certificates": bool(ca_file), "timeout": "60s"}
        self.store = S3Store(bucket, prefix=prefix or None, endpoint=endpoint, region="us-east-1", client_options=options,
                             access_key_id=os.environ["AWS_ACCESS_KEY_ID"], secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
                             virtual_hosted_style_request=False, unsigned_payload=True, **more)
        self.loop = asyncio.new_event_loop()

    def get(self, r, in_flight):
        async def worker():
            while r.going():
                offset, begin = r.next_offset(), time.perf_counter()
                got = await self.obstore.get_range_async(self.store, "range", start=offset, length=r.length)
                r.latencies.append(time.perf_counter() - begin)
                r.check(memoryview(got), offset)

        self.run(r, worker, in_flight)

    def put(self, r, in_flight):
        body = bytes(bytearray(r.length))

        async def worker(i=[0]):
            key = f"put{i[0]}"
            i[0] += 1
            while r.going():
                begin = time.perf_counter()
                # Like the others: one request up to 64 MiB, parts above it.
                await self.obstore.put_async(self.store, key, body, use_multipart=r.length > 64 << 20, chunk_size=16 << 20, max_concurrency=4)
                r.latencies.append(time.perf_counter() - begin)

        self.run(r, worker, in_flight)

    def run(self, r, worker, in_flight):
        r.start()

        async def all_of_them():
            await asyncio.gather(*(worker() for _ in range(in_flight)))

        self.loop.run_until_complete(all_of_them())


class Crt:
    def __init__(self, endpoint, bucket, prefix, threads, ca_file):
        import awscrt
        from awscrt import auth, io, s3

        self.s3, self.version = s3, "awscrt " + awscrt.__version__
        from awscrt.http import HttpHeaders, HttpRequest

        self.headers, self.request = HttpHeaders, HttpRequest
        group = io.EventLoopGroup(threads)
        bootstrap = io.ClientBootstrap(group, io.DefaultHostResolver(group))
        provider = auth.AwsCredentialsProvider.new_static(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
        tls = None
        if ca_file:
            context = io.TlsContextOptions()
            context.override_default_trust_store_from_path(None, ca_file)
            tls = io.ClientTlsContext(context).new_connection_options()
            tls.set_server_name("localhost")
        self.client = s3.S3Client(bootstrap=bootstrap, region="us-east-1", tls_connection_options=tls, throughput_target_gbps=20.0,
                                  tls_mode=s3.S3RequestTlsMode.ENABLED if ca_file else s3.S3RequestTlsMode.DISABLED,
                                  signing_config=s3.create_default_s3_signing_config(region="us-east-1", credential_provider=provider),
                                  part_size=16 << 20, multipart_upload_threshold=64 << 20)
        self.host = endpoint.split("://", 1)[1]
        self.path = "/" + "/".join(p for p in (bucket, prefix) if p) + "/"
        self.names, self.buffers = [], {}

    def get(self, r, in_flight):
        def start(i, done):
            offset, begin = r.next_offset(), time.perf_counter()
            buffer = self.buffers.setdefault((i, r.length), bytearray(r.length))
            filled = 0

            def on_body(chunk, offset, **_):
                nonlocal filled
                buffer[filled:filled + len(chunk)] = chunk
                filled += len(chunk)

            def on_done(error=None, **_):
                r.latencies.append(time.perf_counter() - begin)
                try:
                    r.check(memoryview(buffer)[:filled], offset)
                except ValueError as e:
                    error = error or e
                done(i, error)

            headers = self.headers([("host", self.host), ("range", f"bytes={offset}-{offset + r.length - 1}")])
            return self.client.make_request(type=self.s3.S3RequestType.GET_OBJECT, request=self.request("GET", self.path + "range", headers),
                                            on_body=on_body, on_done=on_done)

        self.run(r, start, in_flight)

    def put(self, r, in_flight):
        import io

        body = bytes(bytearray(r.length))
        check = self.s3.S3ChecksumConfig(algorithm=self.s3.S3ChecksumAlgorithm.CRC32C, location=self.s3.S3ChecksumLocation.TRAILER)

        def start(i, done):
            begin = time.perf_counter()

            def on_done(error=None, **_):
                r.latencies.append(time.perf_counter() - begin)
                done(i, error)

            headers = self.headers([("host", self.host), ("content-length", str(r.length)), ("content-type", "application/octet-stream")])
            return self.client.make_request(type=self.s3.S3RequestType.PUT_OBJECT, checksum_config=check, on_done=on_done,
                                            request=self.request("PUT", f"{self.path}put{i}", headers, io.BytesIO(body)))

        self.run(r, start, in_flight)

    def run(self, r, start, in_flight):
        r.start()
        changed = threading.Condition()
        state = {"busy": in_flight, "error": None}
        running = {}

        def done(i, error):
            if error is None and state["error"] is None and r.going():
                running[i] = start(i, done)
                return
            with changed:
                state["error"] = state["error"] or error
                state["busy"] -= 1
                changed.notify()

        for i in range(in_flight):
            running[i] = start(i, done)
        with changed:
            while state["busy"]:
                changed.wait()
        if state["error"]:
            raise RuntimeError(state["error"])


def main():
    kind, endpoint, bucket, prefix, threads = sys.argv[1:6]
    ca_file = sys.argv[6] if len(sys.argv) > 6 else ""
    try:
        name, _, checksum = kind.partition("+")
        more = {"checksum_algorithm": checksum} if checksum else {}
        client = {"awscrt": Crt, "obstore": Obstore}[name](endpoint, bucket, prefix, int(threads), ca_file, **more)
    except ImportError as e:
        print("absent", e, flush=True)
        return
    print("ready", client.version, flush=True)
    for line in sys.stdin:
        what, length, in_flight, seconds, object_bytes = line.split()
        r = Round(int(length), float(seconds), int(object_bytes))
        try:
            getattr(client, what)(r, int(in_flight))
            print(r.figures(), flush=True)
        except Exception as e:  # one line, whatever it was: the benchmark shows it
            print("error", " ".join(str(e).split())[:300], flush=True)


main()
