// Speaks for the tokenizer to the tests in Python. text_probe FILE answers lines with lines:
//   encode HEX, plain HEX (without special tokens)      ids
//   decode SKIP ID …                                    hex; also decoded as a stream, which must give the same
//   id HEX, token ID                                    an id, hex, or "none"
//   time PATH                                           bytes and seconds of encoding a file
// Bytes are in hex, so that any of them can be sent; an empty text is "-".
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <sstream>
#include <string>

#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/text/tokenizer.hpp"

namespace {

using namespace tigon;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  if (hex == "-") return bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

std::string to_hex(const std::string& bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex.empty() ? "-" : hex;
}

std::string decoded(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip) {
  StreamDecoder stream(tokenizer, skip);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  text += stream.finish();
  return text == tokenizer.decode(ids, skip) ? to_hex(text) : "the stream differs";
}

std::string timed(const Tokenizer& tokenizer, const std::string& path) {
  const std::string text = read_text_file(path, int64_t{1} << 30);
  TextEncoder encoder(tokenizer);
  std::vector<int32_t> ids;
  const auto begin = std::chrono::steady_clock::now();
  encoder.encode(text, ids);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return fmt::format("{} {} {:.6f}", text.size(), ids.size(), seconds.count());
}

std::string answer(const Tokenizer& tokenizer, TextEncoder& encoder, const std::string& line) {
  std::istringstream words(line);
  std::string verb, hex;
  words >> verb;
  if (verb == "encode" || verb == "plain") {
    words >> hex;
    std::vector<int32_t> ids;
    encoder.encode(from_hex(hex), ids, verb == "encode");
    return fmt::format("{}", fmt::join(ids, " "));
  }
  if (verb == "decode") {
    bool skip = false;
    words >> skip;
    std::vector<int32_t> ids;
    for (int32_t id = 0; words >> id;) ids.push_back(id);
    return decoded(tokenizer, ids, skip);
  }
  words >> hex;
  if (verb == "id") {
    const auto id = tokenizer.token_to_id(from_hex(hex));
    return id ? std::to_string(*id) : "none";
  }
  if (verb == "token") {
    const auto token = tokenizer.id_to_token(std::stoi(hex));
    return token ? to_hex(*token) : "none";
  }
  return verb == "time" ? timed(tokenizer, hex) : "what?";
}

}  // namespace

int main(int, char** arguments) try {
  const Tokenizer tokenizer = Tokenizer::load(arguments[1]);
  TextEncoder encoder(tokenizer);
  std::cout << "vocab " << tokenizer.vocab() << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(tokenizer, encoder, line) << std::endl;
  return 0;
} catch (const tigon::Error& error) {
  std::cout << "error " << error.what() << std::endl;
  return 1;
}
