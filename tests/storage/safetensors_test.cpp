#include "tigon/storage/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "ops/expect_error.hpp"
#include "tigon/core/error.hpp"
#include "tigon/core/philox.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

std::string with_header(const std::string& header, const std::string& data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i)));
  return file + header + data;
}

void expect_refused(const std::string& bytes, const std::string& why) {
  const TemporaryFolder folder;
  write_text_file(folder / "x.safetensors", bytes);
  try {
    (void)TensorFiles::open(folder / "x.safetensors");
    ADD_FAILURE() << "accepted, though it should say: " << why;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
}

TEST(Safetensors, RoundTrips) {
  const TemporaryFolder folder;
  std::vector<float> a(300);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i) * 0.5f;
  const auto from = [](const void* data) {
    return [data](int64_t offset, void* out, int64_t bytes) {
      std::memcpy(out, static_cast<const char*>(data) + offset, static_cast<size_t>(bytes));
    };
  };
  const uint64_t sum = write_safetensors(folder / "x",
                                         {{"b", DType::f32, {3, 100}, from(a.data())},
                                          {"a", DType::bf16, {5}, from(a.data())},
                                          {"empty", DType::f32, {0, 4}, from(a.data())}},
                                         {{"format", "pt"}});
  EXPECT_EQ(sum, file_checksum(folder / "x"));
  const TensorFiles files = TensorFiles::open(folder / "x");
  EXPECT_EQ(files.metadata().at("format"), "pt");
  EXPECT_EQ(files.tensors().size(), 3u);
  const StoredTensor& b = *files.find("b");
  EXPECT_EQ(b.sizes, (std::vector<int64_t>{3, 100}));
  std::vector<float> read(100);
  files.read(b, 400, read.data(), 400);
  EXPECT_TRUE(std::equal(read.begin(), read.end(), a.begin() + 100));
  EXPECT_EQ(files.find("a")->dtype, DType::bf16);
  EXPECT_EQ(files.find("c"), nullptr);
  EXPECT_THROW(files.read(b, 1000, read.data(), 400), Error);
}

TEST(Safetensors, WhatCouldNotBeReadBackIsNotWritten) {
  const TemporaryFolder folder;
  const TensorToStore a{
      "a", DType::f32, {1}, [](int64_t, void* out, int64_t bytes) { std::memset(out, 0, static_cast<size_t>(bytes)); }};
  TensorToStore typeless = a, empty = a, metadata = a;
  typeless.dtype = static_cast<DType>(kDTypeCount);
  empty.produce = nullptr;
  metadata.name = "__metadata__";
  for (const auto& tensors : std::vector<std::vector<TensorToStore>>{{a, a}, {typeless}, {empty}, {metadata}}) {
    EXPECT_THROW((void)write_safetensors(folder / "x", tensors), Error);
    EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  }
}

TEST(Safetensors, HostileHeadersAreRefused) {
  const std::string data(16, 'x');
  expect_refused("", "too short");
  expect_refused("1234567", "too short");
  expect_refused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8) + "{}", "length is impossible");
  expect_refused(with_header("{", ""), "not JSON");
  expect_refused(with_header("[1]", ""), "an object");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "short"),
                 "outside the file");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", data + "more"),
                 "does not end");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[-16,0]}})", data), "outside the file");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})", data), "outside the file");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}})", data), "does not fit");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", data),
                 "negative or overflows");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}})", data),
                 "overflows");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,99999999999999999999]}})", data), "");
  expect_refused(with_header(R"({"a":{"dtype":"F8_E4M3","shape":[16],"data_offsets":[0,16]}})", data), "'F8_E4M3'");
  expect_refused(with_header(R"({"a":{"shape":[4],"data_offsets":[0,16]}})", data), "'dtype' is missing");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[4.5],"data_offsets":[0,16]}})", data), "whole number");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0]}})", data), "not a pair");
  expect_refused(
      with_header(
          R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
          data),
      "twice");
  expect_refused(
      with_header(
          R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
          data),
      "overlap");
  expect_refused(
      with_header(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
          data),
      "gap");
  std::string deep(200, '[');
  expect_refused(with_header(deep + std::string(200, ']'), ""), "nested");
}

TEST(Safetensors, FlippedAndCutFilesNeverCrash) {
  const TemporaryFolder folder;
  const std::string good = with_header(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})",
      std::string(19, 'd'));
  const RandomStream random{.seed = 1};
  int refused = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    std::string bad = good;
    const size_t flips = 1 + random.bits(8 * i) % 3;
    for (size_t f = 0; f < flips; ++f) {
      const size_t at = random.bits(8 * i + 1 + f) % bad.size();
      bad[at] = static_cast<char>(bad[at] ^ (1 << random.bits(8 * i + 4 + f) % 8));
    }
    if (i % 5 == 0) bad.resize(random.bits(8 * i + 7) % bad.size());
    std::ofstream(folder / "x", std::ios::binary | std::ios::trunc) << bad;
    try {
      const TensorFiles files = TensorFiles::open(folder / "x");
      for (const auto& [name, tensor] : files.tensors()) {
        std::vector<char> bytes(static_cast<size_t>(tensor.bytes));
        files.read(tensor, 0, bytes.data(), tensor.bytes);
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

TEST(Safetensors, ShardsThroughTheIndex) {
  const TemporaryFolder folder;
  const auto write = [&](const char* file, const char* name) {
    write_text_file(
        folder / file,
        with_header(R"({")" + std::string(name) + R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xy"));
  };
  write("one.safetensors", "a");
  write("two.safetensors", "b");
  const auto index = [&](const std::string& text) { write_text_file(folder / "model.safetensors.index.json", text); };
  EXPECT_THROW((void)TensorFiles::open(folder / ""), Error);
  index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_EQ(TensorFiles::open(folder / "").tensors().size(), 2u);
  for (const char* bad : {R"({"weight_map":{"a":"../one.safetensors"}})", R"({"weight_map":{"a":"/etc/passwd"}})",
                          R"({"weight_map":{"a":".."}})", R"({"weight_map":{"a":"two.safetensors"}})",
                          R"({"weight_map":{"c":"one.safetensors"}})", R"({"weight_map":{"a":"gone.safetensors"}})",
                          R"({"weight_map":[]})", R"({})", R"(nonsense)"}) {
    index(bad);
    EXPECT_THROW((void)TensorFiles::open(folder / ""), Error) << bad;
  }
  write("two.safetensors", "a");
  index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_THROW((void)TensorFiles::open(folder / ""), Error) << "a tensor in two files";
}

TEST(FileWriter, LeavesNothingHalfDone) {
  const TemporaryFolder folder;
  write_text_file(folder / "file", "old");
  {
    FileWriter writer(folder / "file");
    writer.write("half of the n");
  }
  EXPECT_EQ(read_text_file(folder / "file", 100), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / ""), {}), 1);
  EXPECT_THROW(FileWriter(folder / "none/file"), Error);
  EXPECT_THROW((void)read_text_file(folder / "file", 2), Error);
}

TEST(FileWriter, ReplacesPlainFilesOnly) {
  const TemporaryFolder folder;
  const auto pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(write_text_file(pipe, "text"), Error);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_THROW(write_text_file(folder / "", "text"), Error);
}

TEST(FileWriter, FollowsLinks) {
  const TemporaryFolder folder;
  namespace fs = std::filesystem;
  fs::create_directory(folder / "disk");
  const auto files = [&] { return std::distance(fs::recursive_directory_iterator(folder / ""), {}); };
  write_text_file(folder / "disk/file", "old");
  fs::create_symlink("disk/file", folder / "link");
  fs::create_symlink(folder / "link", folder / "link to the link");
  {
    FileWriter writer(folder / "link to the link");
    writer.write("half of the n");
  }
  EXPECT_EQ(read_text_file(folder / "disk/file", 100), "old");
  EXPECT_EQ(files(), 4);
  write_text_file(folder / "link to the link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link to the link") && fs::is_symlink(folder / "link"));
  EXPECT_FALSE(fs::is_symlink(folder / "disk/file"));
  EXPECT_EQ(read_text_file(folder / "disk/file", 100), "new");
  EXPECT_EQ(files(), 4);

  fs::create_symlink("disk/none yet", folder / "dangling");
  write_text_file(folder / "dangling", "first");
  EXPECT_TRUE(fs::is_symlink(folder / "dangling"));
  EXPECT_EQ(read_text_file(folder / "disk/none yet", 100), "first");
  EXPECT_EQ(files(), 6);
}

TEST(FileWriter, LinksThatLeadToNoFileAreRefused) {
  const TemporaryFolder folder;
  namespace fs = std::filesystem;
  fs::create_symlink("/dev/null", folder / "device");
  fs::create_symlink(".", folder / "folder");
  fs::create_symlink("circle", folder / "circle");
  fs::create_symlink("no folder/file", folder / "nowhere");
  expect_error([&] { write_text_file(folder / "device", "text"); }, ErrorCode::invalid_argument, "not a plain file");
  expect_error([&] { write_text_file(folder / "folder", "text"); }, ErrorCode::invalid_argument, "not a plain file");
  expect_error([&] { write_text_file(folder / "circle", "text"); }, ErrorCode::io, "symbolic links");
  expect_error([&] { write_text_file(folder / "nowhere", "text"); }, ErrorCode::io, "no folder/file");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / ""), {}), 4);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "")) EXPECT_TRUE(entry.is_symlink());
}

TEST(Checksum, SeesEveryFlippedBitAndEveryLength) {
  std::string text(77, 'q');
  const uint64_t sum = text_checksum(text);
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(text_checksum(text), sum);
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  }
  EXPECT_NE(text_checksum(text + std::string(1, '\0')), sum);
  EXPECT_NE(text_checksum(text.substr(1)), sum);
}

}  // namespace
}  // namespace tigon::test
