// Feeds the fuzz target random bytes where libFuzzer is not to be had: fuzz_capi_random [inputs] [seed]
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern long tigon_fuzz_accepted;

int main(int argc, char** argv) {
  const long inputs = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 100000;
  std::mt19937_64 random(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  for (long i = 0; i < inputs; ++i) {
    std::vector<uint8_t> bytes(64 + random() % 192);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%ld inputs, %ld past the checks, no fault\n", inputs, tigon_fuzz_accepted);
  return tigon_fuzz_accepted > inputs / 4 ? 0 : 1;  // else mostly refusals were tested
}
