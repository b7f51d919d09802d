# Sourced by the scripts that build a store: go_program VERSION prints a go command that is VERSION (such as 1.24.13) or newer.
# Where none is installed: Debian's golang-go (as root), whatever its age, fetches the toolchain as the Go module golang.org/toolchain, whose
# checksum it verifies as that of any module.
go_program() {
  local want=$1 have dir
  dir=${XDG_CACHE_HOME:-$HOME/.cache}/batchweave-services/go-$want
  if command -v go >/dev/null; then
    have=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null | sed 's/^go//; s/[^0-9.].*//')
    if [ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1)" = "$want" ]; then command -v go; return 0; fi
  elif [ ! -x "$dir/bin/go" ]; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "no Go here" >&2; return 1; }
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends golang-go ca-certificates; } >&2 || return 1
  fi
  if [ ! -x "$dir/bin/go" ]; then
    have=$(cd / && GOTOOLCHAIN=local GOFLAGS=-modcacherw go mod download -json "golang.org/toolchain@v0.0.1-go$want.linux-$(go env GOARCH)" |
      sed -n 's/^\t"Dir": "\(.*\)",$/\1/p') && [ -n "$have" ] || { echo "no Go here" >&2; return 1; }
    mkdir -p "$(dirname "$dir")" && rm -rf "$dir.new" && cp -r "$have" "$dir.new" && chmod -R u+w "$dir.new" &&
      chmod +x "$dir.new"/bin/* "$dir.new"/pkg/tool/*/* && mv "$dir.new" "$dir" || return 1
  fi
  echo "$dir/bin/go"
}
