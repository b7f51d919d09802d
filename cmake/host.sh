# Shell functions of tests/run.sh, examples/run.sh and .ci/run: packages, parallelism, sanitizer start-up.

# host_install build|tests|clang ...: installs the Debian packages of these sets that are missing.
host_install() {
  local want=() missing=() set p
  for set in "$@"; do
    case $set in
      build) want+=(cmake ninja-build g++ libssl-dev libsimdjson-dev libpugixml-dev libxxhash-dev)
        if ! host_has_boost; then want+=("$(host_boost_package)"); fi;;
      tests) want+=(catch2 libsqlite3-dev ccache python3 python3-boto3 curl ca-certificates openssl util-linux);;
      clang) command -v clang++-19 >/dev/null || want+=(clang-19);;
    esac
  done
  command -v dpkg-query >/dev/null || { echo "This is no Debian or Ubuntu; needed (Debian names): ${want[*]}" >&2; return 0; }
  for p in "${want[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -q '^installed' || missing+=("$p")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local sudo=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "Missing packages: ${missing[*]} (not root and no sudo here)" >&2; return 1; }
    sudo=(sudo)
  fi
  echo "installing: ${missing[*]}"
  local log; log=$(mktemp)
  if ! { "${sudo[@]}" apt-get update -qq && "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2; rm -f "$log"; echo "apt-get could not install: ${missing[*]}" >&2; return 1
  fi
  rm -f "$log"
}

host_has_boost() {
  local v
  v=$(sed -n 's/^#define BOOST_VERSION \([0-9]*\)$/\1/p' "${Boost_ROOT:-/usr}/include/boost/version.hpp" 2>/dev/null) || return 1
  [ "${v:-0}" -ge 108100 ]
}

# The default libboost-dev of Debian 12 is 1.74, which is too old.
host_boost_package() {
  local id='' codename=''
  if [ -r /etc/os-release ]; then id=$(. /etc/os-release; echo "${ID:-}"); codename=$(. /etc/os-release; echo "${VERSION_CODENAME:-}"); fi
  case $id:$codename in
    debian:bookworm|ubuntu:lunar) echo libboost1.81-dev;;
    *) echo libboost1.83-dev;;
  esac
}

# One compiler for each processor, but 2 GiB of memory for each.
host_jobs() {
  local n m
  n=$(nproc); m=$(awk '/MemAvailable/ { print int($2 / 2097152) }' /proc/meminfo 2>/dev/null || echo "$n")
  [ "$m" -ge 1 ] || m=1
  echo $((n < m ? n : m))
}

# host_sanitizer_starts asan|tsan [WRAPPER ...]: does an empty program start five times?
host_sanitizer_starts() {
  local kind=$1 dir ok=0 i; shift
  dir=$(mktemp -d)
  echo 'int main() {}' >"$dir/a.cpp"
  g++ "-fsanitize=$([ "$kind" = tsan ] && echo thread || echo address)" -o "$dir/a" "$dir/a.cpp" || ok=1
  for i in 1 2 3 4 5; do [ $ok = 0 ] && { "$@" "$dir/a" >/dev/null 2>&1 || ok=1; }; done
  rm -rf "$dir"
  return $ok
}
