# Shared by the scripts here; sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What a build needs, by Debian 12 / Ubuntu 24.04 package name.
build_packages=(g++ cmake ninja-build libdnnl-dev libhwy-dev libfmt-dev libcli11-dev)
test_packages=(libgtest-dev)

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }

# Installs what is missing of the named packages. Without root it prints the one line to run.
install_packages() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then return 0; fi
  if [ "$(id -u)" -ne 0 ]; then
    echo "Tigon needs packages that are not installed. Run this, then try again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  say "Installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Configures (when it has not been) and builds one preset; $2… are targets.
build_preset() {
  local preset=$1
  shift
  if [ ! -f "build/$preset/build.ninja" ]; then
    say "Configuring $preset"
    cmake --preset "$preset" >/dev/null
  fi
  local targets=()
  for target in "$@"; do targets+=(--target "$target"); done
  cmake --build --preset "$preset" "${targets[@]}"
}
