"""Checks the include direction and bans calls that would make behaviour depend on the machine.

usage: tidy.py PROJECT_FOLDER | --self-test      exit status 0: clean; 1: findings, one a line
"""
import pathlib
import re
import sys

LAYER = {"base": 0, "aio": 1, "http": 2, "s3": 2, "store": 3, "tgb": 4, "manifest": 4, "commit": 5, "": 6, "testing": 7}
PURE = {"base", "tgb", "manifest"}  # may include the base layer only, and no Asio
S3_WITH_IO = {f"s3/{n}.hpp" for n in ("attempt", "client", "client_state", "config", "credential_cache", "credential_chain", "credential_process",
                                    "hedge", "metadata", "multipart", "operation", "operations", "perform", "sts")}

# pattern, why, where it is allowed (relative to include/batchweave)
BANNED = [
    (r"\bsteady_timer\b", "waiting goes through the clock", {"aio/clock.hpp", "http/", "testing/"}),
    (r"\bstd::(thread|jthread|async)\b", "the library has no threads of its own", set()),
    (r"\bdetached\b", "a detached coroutine loses its exception; use task_group", {"testing/"}),
    (r"\bs?rand\(", "randomness comes from base/random.hpp", set()),
    (r"\brandom_device\b", "randomness comes from base/random.hpp", {"base/random.hpp", "base/id128.hpp"}),
    # file_folder: compares with modification times, which the file system takes from the wall clock
    (r"\b(system_clock|steady_clock|high_resolution_clock)::now\b", "time comes from the clock",
     {"aio/clock.hpp", "http/", "store/file_folder.hpp", "testing/"}),
    (r"[^\w.>:](time|gettimeofday|clock_gettime)\((nullptr|NULL|0|&)", "time comes from the clock", {"aio/clock.hpp", "testing/"}),
    (r"\bsleep_(for|until)\(", "nothing blocks", set()),
    (r"\bexperimental::channel\b", "not a queue on Boost 1.81", set()),
    (r"\bstd::(cout|cerr|clog|printf)\b", "a library does not print", set()),
]


def code_of(text):
    """The text without comments and string contents, lines kept."""
    out, i = [], 0
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.S)
    for m in token.finditer(text):
        out.append(text[i:m.start()])
        kept = m.group(0) if text[text.rfind("\n", 0, m.start()) + 1:m.start()].lstrip().startswith("#include") else '""'
        out.append(kept + "\n" * (m.group(0).count("\n") - kept.count("\n")))
        i = m.end()
    return "".join(out) + text[i:]


def check_header(name, text):
    """Findings about one header; `name` is relative to include/batchweave."""
    found = []
    folder = name.split("/")[0] if "/" in name else ""
    if folder not in LAYER:
        return [f"{name}: the folder '{folder}' is no layer; add it to tests/tidy/tidy.py"]
    if not text.startswith("//"):
        found.append(f"{name}:1: the first line must be a comment that says what the header holds")
    if "#pragma once" not in text:
        found.append(f"{name}: no #pragma once")
    for number, line in enumerate(code_of(text).split("\n"), 1):
        at = f"{name}:{number}"
        m = re.match(r"\s*#\s*include\s*[<\"]([^>\"]+)", line)
        if m:
            what = m.group(1)
            if what.startswith("batchweave/"):
                inner = what.removeprefix("batchweave/")
                target = inner.split("/")[0] if "/" in inner else ""
                if LAYER.get(target, 99) > LAYER[folder]:
                    found.append(f"{at}: {folder or 'roles'} (layer {LAYER[folder]}) includes {what} (layer {LAYER.get(target)})")
                if folder in PURE and target not in {"base", folder} and not (folder == "manifest" and target == "tgb"):
                    found.append(f"{at}: {folder} is pure and may include only base, not {what}")
                if folder == "s3" and name not in S3_WITH_IO and target in {"aio", "http"}:
                    found.append(f"{at}: {name} is pure and may not include {what}")
            elif what.startswith("boost/asio") and (folder in PURE or (folder == "s3" and name not in S3_WITH_IO)):
                found.append(f"{at}: {name} is pure and may not include Asio")
            elif what.startswith("boost/beast") and folder not in {"http", "testing"}:
                found.append(f"{at}: only http/ includes Beast")
            elif line.lstrip().startswith('#include "') or '"' in line:
                found.append(f"{at}: includes are written <batchweave/...>")
            continue
        for pattern, why, allowed in BANNED:
            if re.search(pattern, line) and not any(name.startswith(a) for a in allowed):
                found.append(f"{at}: {pattern}: {why}")
        if re.search(r"co_await[^;]*\(\s*\{", line) or re.search(r"co_await\s[^;(]*\([^;]*(?<![\w:])(?!(?:std::)?u?(?:int\d+|size)_t\{)[a-z_:]*[a-z_]\{[^}]*\}[^;]*\)\s*;", line):
            found.append(f"{at}: a braced temporary in a co_await expression is destroyed twice by g++ 12.2; name it first")
    return found


def check_any(name, text):
    """Findings about any text file of the project."""
    return [f"{name}:{n}: {what}" for n, line in enumerate(text.split("\n"), 1)
            for pattern, what in [(r"\.\./" + "shared", "refers to a folder outside the project")] if re.search(pattern, line)]


def check_readme(readme, program):
    """The first C++ block of the README is made of lines of examples/hello, in order."""
    block = re.search(r"```cpp\n(.*?)```", readme, re.S)
    if not block:
        return ["README.md: no C++ example"]
    lines, at = [line.strip() for line in program.split("\n")], 0
    for line in filter(None, (line.strip() for line in block.group(1).split("\n"))):
        if line not in lines[at:]:
            return [f"README.md: the line '{line}' is not in examples/hello/hello.cpp (or not in this order)"]
        at = lines.index(line, at) + 1
    return []


def check_project(top):
    found = check_readme((top / "README.md").read_text(), (top / "examples/hello/hello.cpp").read_text())
    include = top / "include" / "batchweave"
    for path in sorted(include.rglob("*.hpp")):
        found += check_header(path.relative_to(include).as_posix(), path.read_text())
    for folder in ["include", "examples", "tests", "bench", "cmake", ".ci"]:
        for path in sorted((top / folder).rglob("*")):
            if path.is_file() and path.suffix in {".hpp", ".cpp", ".sh", ".py", ".txt", ".cmake", ".md", ""}:
                found += check_any(path.relative_to(top).as_posix(), path.read_text(errors="replace"))
    return found


def self_test():
    start = "// x\n#pragma once\n"
    bad = [
        ("base/a.hpp", "#include <batchweave/aio/clock.hpp>"), ("tgb/a.hpp", "#include <boost/asio/awaitable.hpp>"),
        ("tgb/a.hpp", "#include <batchweave/store/store.hpp>"), ("store/a.hpp", "#include <boost/beast/http.hpp>"),
        ("s3/xml.hpp", "#include <batchweave/http/pool.hpp>"), ("store/a.hpp", "#include <batchweave/producer.hpp>"),
        ("store/a.hpp", "asio::steady_timer t;"), ("store/a.hpp", "std::thread t;"), ("commit/a.hpp", "f(asio::detached);"),
        ("commit/a.hpp", "x = std::chrono::system_clock::now();"), ("a.hpp", "int x = rand();"), ("new/a.hpp", ""),
        ("a.hpp", "co_await f({1, 2});"), ("a.hpp", "co_await s.put(key, body, options{1});"),
    ]
    good = [
        ("commit/a.hpp", "// no steady_timer here\nauto s = \"std::thread\";"), ("http/a.hpp", "#include <boost/beast/core.hpp>"),
        ("testing/a.hpp", "#include <batchweave/producer.hpp>"), ("a.hpp", "co_await f(std::move(named));"),
        ("a.hpp", "co_await f(size - 1, std::size_t{3} << 20);"),
    ]
    wrong = [f"not found: {n}: {t}" for n, t in bad if not check_header(n, start + t)]
    wrong += [f"false alarm: {f}" for n, t in good for f in check_header(n, start + t)]
    return wrong


if __name__ == "__main__":
    findings = self_test() if sys.argv[1:] == ["--self-test"] else check_project(pathlib.Path(sys.argv[1]))
    print("\n".join(findings) or "clean")
    sys.exit(bool(findings))
