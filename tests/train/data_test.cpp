#include "tigon/train/data.hpp"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <numeric>
#include <set>

#include "ops/expect_error.hpp"
#include "tigon/core/error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/storage/files.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

TEST(TokenFile, RoundTripsInBothWidths) {
  const TemporaryFolder folder;
  for (const int64_t vocab : {300, 70000}) {
    std::vector<int32_t> tokens(500);
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>((i * 7919) % static_cast<size_t>(vocab));
    write_token_file(folder / "tokens", tokens, vocab);
    const TokenFile file(folder / "tokens");
    EXPECT_EQ(file.tokens(), 500);
    EXPECT_EQ(file.vocab(), vocab);
    std::vector<int32_t> read(120);
    file.read(300, 120, read.data());
    EXPECT_TRUE(std::equal(read.begin(), read.end(), tokens.begin() + 300));
  }
}

TEST(TokenFile, TextIsBytes) {
  const TemporaryFolder folder;
  write_text_file(folder / "text", "a\xff\n");
  const TokenFile file(folder / "text");
  std::vector<int32_t> read(3);
  file.read(0, 3, read.data());
  EXPECT_EQ(read, (std::vector<int32_t>{'a', 255, '\n'}));
}

TEST(TokenFile, ABadTokenIsFoundWhereverItStands) {
  const TemporaryFolder folder;
  for (const int64_t vocab : {300, 70000}) {
    const int64_t count = (int64_t{1} << 20) + 5, bad = count - 2;
    write_token_file(folder / "tokens", std::vector<int32_t>(static_cast<size_t>(count), 7), vocab);
    const int64_t width = vocab > 65536 ? 4 : 2;
    std::fstream file(folder / "tokens", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(32 + bad * width);
    file.write("\xff\xff\xff\xff", width);
    file.close();
    const TokenFile tokens(folder / "tokens");
    EXPECT_NO_THROW(tokens.check(0, bad));
    EXPECT_NO_THROW(tokens.check(bad + 1, count));
    expect_error([&] { tokens.check(0, count); }, ErrorCode::invalid_argument,
                 "token " + std::to_string(bad) + " is outside the vocabulary");
  }
}

TEST(TokenFile, HostileHeadersAreRefused) {
  const TemporaryFolder folder;
  write_token_file(folder / "good", std::vector<int32_t>(50, 3), 10);
  const std::string good = read_text_file(folder / "good", 1 << 20);
  const RandomStream random{.seed = 9};
  int refused = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    std::string bad = good;
    if (i % 2) {
      bad.resize(8 + random.bits(2 * i) % (bad.size() - 8));
    } else {
      const size_t at = 8 + random.bits(2 * i) % 24;
      bad[at] = static_cast<char>(bad[at] ^ (1 << random.bits(2 * i + 1) % 8));
    }
    write_text_file(folder / "bad", bad);
    try {
      const TokenFile file(folder / "bad");
      std::vector<int32_t> read(static_cast<size_t>(file.tokens()));
      file.read(0, file.tokens(), read.data());
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);  // what is left only changed the vocabulary's size
  EXPECT_THROW(TokenFile(folder / "none"), Error);
}

TEST(TokenFile, TokensOutsideTheVocabularyAreNotWritten) {
  const TemporaryFolder folder;
  for (const int32_t token : {-1, 100, 65536 + 7}) {  // the last one's low bytes would be a token
    expect_error(
        [&] {
          write_token_file(folder / "tokens", {1, token}, 100);
        },
        ErrorCode::invalid_argument, "token 1 is outside the vocabulary; expected 0 to 99");
  }
  expect_error([&] { write_token_file(folder / "tokens", {}, 0); }, ErrorCode::invalid_argument, "vocab");
  EXPECT_FALSE(std::filesystem::exists(folder / "tokens"));
}

Sampler::Options options(int64_t seq) { return {.seq = seq, .vocab = 256, .seed = 4}; }

// Documents of 1 to 7 tokens; of every third one the first half is not to be learnt.
void write_documents(const std::filesystem::path& path, int64_t vocab, bool masked) {
  TokenFileWriter writer(path, vocab);
  for (int32_t i = 0; i < 50; ++i) {
    std::vector<int32_t> tokens(static_cast<size_t>(i % 7 + 1), i);
    std::vector<bool> learnt(tokens.size(), true);
    for (size_t j = 0; masked && i % 3 == 2 && j < tokens.size() / 2; ++j) learnt[j] = false;
    writer.add(tokens, learnt);
  }
  writer.finish();
}

TEST(TokenFile, DocumentsAndTheirMaskComeBack) {
  const TemporaryFolder folder;
  for (const int64_t vocab : {300, 70000}) {
    for (const bool masked : {false, true}) {
      write_documents(folder / "tokens", vocab, masked);
      const TokenFile file(folder / "tokens");
      EXPECT_EQ(file.vocab(), vocab);
      EXPECT_EQ(file.documents(), 50);
      EXPECT_EQ(file.has_mask(), masked);
      const std::vector<int64_t> starts = file.document_starts(0, 50);
      EXPECT_EQ(file.document_starts(49, 1)[0], starts[49]);
      int64_t at = 0;
      for (int32_t i = 0; i < 50; ++i) {
        const int64_t length = i % 7 + 1;
        ASSERT_EQ(starts[static_cast<size_t>(i)], at);
        std::vector<int32_t> tokens(static_cast<size_t>(length));
        file.read(at, length, tokens.data());
        EXPECT_EQ(tokens, std::vector<int32_t>(static_cast<size_t>(length), i));
        const std::vector<bool> learnt = file.read_mask(at, length);
        for (int64_t j = 0; j < length; ++j)
          EXPECT_EQ(learnt[static_cast<size_t>(j)], !(masked && i % 3 == 2 && j < length / 2)) << i << " " << j;
        at += length;
      }
      EXPECT_EQ(file.tokens(), at);
    }
  }
}

TEST(TokenFile, AFileThatWasNotFinishedIsNotThere) {
  const TemporaryFolder folder;
  { TokenFileWriter(folder / "tokens", 300).add(std::vector<int32_t>{1}, {true}); }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "."));
  TokenFileWriter writer(folder / "tokens", 300);
  EXPECT_THROW(writer.add(std::vector<int32_t>{300}, {true}), Error);
  EXPECT_THROW(writer.add(std::vector<int32_t>{-1}, {true}), Error);
}

TEST(TokenFile, AWriterGoesOnWhereAnotherWas) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "tokens";
  const std::vector<int32_t> one = {1, 2, 3}, two = {4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<bool> all(3, true), some = {true, false, true, true, false, true, false, false, true};
  const auto whole = [&] {
    TokenFileWriter writer(path, 300);
    writer.add(one, all);
    writer.add(two, some);
    writer.add(one, all, false);
    writer.add(two, some);
    writer.finish();
    return read_text_file(path, 1 << 20);
  }();
  std::filesystem::remove(path);
  TokenFileWriter::Mark mark;
  {
    TokenFileWriter writer(path, 300);
    writer.add(one, all);
    writer.add(two, some);
    mark = writer.mark();
    writer.add(two, some);  // of which nobody hears again
    EXPECT_THROW(TokenFileWriter(path, 300), Error) << "two writers";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  {
    TokenFileWriter writer(path, 300, mark);
    EXPECT_EQ(writer.tokens(), 12);
    writer.add(one, all, false);
    writer.add(two, some);
    writer.finish();
  }
  EXPECT_EQ(read_text_file(path, 1 << 20), whole);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "."), {}), 1);
  EXPECT_THROW(TokenFileWriter(path, 300, mark), Error) << "there is nothing to go on with";
  // A list that somebody else has written.
  std::filesystem::rename(path, folder / "tokens.part");
  write_text_file(folder / "tokens.documents", std::string(static_cast<size_t>(mark.list_bytes), '\x7f'));
  TokenFileWriter writer(path, 300, mark);
  EXPECT_THROW(writer.finish(), Error);
  writer.discard();
}

TEST(TokenFile, HostileEndsAreRefused) {
  const TemporaryFolder folder;
  write_documents(folder / "tokens", 300, true);
  const std::string whole = read_text_file(folder / "tokens", 1 << 20);
  const auto refused = [&](const std::string& bytes) {
    write_text_file(folder / "broken", bytes);
    EXPECT_THROW(TokenFile(folder / "broken"), Error);
  };
  for (size_t size = 8; size < whole.size(); size += 13) refused(whole.substr(0, size));
  refused(whole + "x");
  for (const size_t field : {32, 24, 16}) {
    for (const std::string& value :
         {std::string(8, '\xff'), std::string("\0\0\0\0\0\0\0\x40", 8), std::string(8, '\0')}) {
      std::string bytes = whole;
      refused(bytes.replace(bytes.size() - field, 8, value));
    }
  }
  std::string bytes = whole;
  refused(bytes.replace(bytes.size() - 16, 8, std::string(8, '\0')));
  // The list of documents is looked at when it is read.
  bytes = whole;
  write_text_file(folder / "broken", bytes.replace(bytes.size() - 32 - 8, 8, std::string(8, '\xff')));
  EXPECT_THROW((void)TokenFile(folder / "broken").document_starts(0, 50), Error);
}

TEST(Sampler, WhatTheMaskLeavesOutDoesNotCount) {
  const TemporaryFolder folder;
  write_documents(folder / "tokens", 300, true);
  Sampler sampler(folder / "tokens", {.seq = 9, .vocab = 300, .shuffle = false});
  sampler.check_labels();
  TokenBatch batch;
  sampler.fill(0, 15, batch);
  const TokenFile file(folder / "tokens");
  const std::vector<bool> learnt = file.read_mask(0, file.tokens());
  int64_t counted = 0;
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    const bool counts = learnt[i + 1];
    counted += counts ? 1 : 0;
    EXPECT_EQ(batch.labels[i] != -100, counts) << i;
    if (i % 9 != 8) {
      EXPECT_TRUE(!counts || batch.labels[i] == batch.ids[i + 1]);
    }
  }
  EXPECT_EQ(batch.counted, counted);
  TokenFileWriter writer(folder / "none", 300);
  writer.add(std::vector<int32_t>(100, 1), std::vector<bool>(100, false));
  writer.finish();
  EXPECT_THROW(Sampler(folder / "none", {.seq = 9, .vocab = 300}).check_labels(), Error);
}

TEST(Sampler, EachEpochTakesEveryWindowOnce) {
  const TemporaryFolder folder;
  std::string text(101, ' ');
  std::iota(text.begin(), text.end(), char{0});
  write_text_file(folder / "text", text);
  Sampler sampler(folder / "text", options(10));
  EXPECT_EQ(sampler.windows(), 10);
  std::vector<std::vector<int32_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int32_t> starts;
    std::vector<int32_t> order;
    for (int64_t i = 0; i < 10; ++i) {
      TokenBatch batch;
      sampler.fill(epoch * 10 + i, 1, batch);
      EXPECT_EQ(batch.labels[0], batch.ids[1]);
      EXPECT_EQ(batch.labels[9], batch.ids[9] + 1);
      EXPECT_EQ(batch.counted, 10);
      starts.insert(batch.ids[0]);
      order.push_back(batch.ids[0]);
    }
    EXPECT_EQ(starts.size(), 10u);
    epochs.push_back(order);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  // Any sample can be asked for at any time.
  Sampler again(folder / "text", options(10));
  TokenBatch batch;
  again.fill(23, 1, batch);
  EXPECT_EQ(batch.ids[0], epochs[2][3]);
}

TEST(Sampler, IgnoredTokensDoNotCount) {
  const TemporaryFolder folder;
  write_text_file(folder / "text", "ab0ab0ab0");
  Sampler::Options o = options(8);
  o.ignored_token = '0';
  Sampler sampler(folder / "text", o);
  TokenBatch batch;
  sampler.fill(0, 1, batch);
  EXPECT_EQ(batch.counted, 5);
  EXPECT_EQ(batch.labels[1], -100);
  EXPECT_EQ(batch.ids[2], '0');
}

TEST(Sampler, WhatFollowsTheEndOfADocumentBeginsAnew) {
  const TemporaryFolder folder;
  write_text_file(folder / "text", "ab0cde00fghijklm0");
  Sampler::Options o = options(8);
  o.documents_apart = true;
  o.document_end = '0';
  o.shuffle = false;
  Sampler sampler(folder / "text", o);
  TokenBatch batch;
  sampler.fill(0, 2, batch);
  // The second row begins in a document, of which it sees what it has.
  EXPECT_EQ(batch.starts, (std::vector<int32_t>{0, 0, 0, 3, 3, 3, 3, 7, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.labels,
            (std::vector<int32_t>{'b', '0', -100, 'd', 'e', '0', -100, -100, 'g', 'h', 'i', 'j', 'k', 'l', 'm', '0'}));
  EXPECT_EQ(batch.counted, 13);
  EXPECT_EQ(batch.ids.size(), 16U);
  o.document_end = 256;
  EXPECT_THROW(Sampler(folder / "text", o), Error);
  o.document_end = -1;
  EXPECT_THROW(Sampler(folder / "text", o), Error);  // which documents?
  EXPECT_THROW(Sampler({}, o), Error);
  // The same from a file that knows them, of any number.
  const std::string text = read_text_file(folder / "text", 100);
  TokenFileWriter writer(folder / "tokens", 256);
  for (size_t i = 0; i < text.size(); ++i)
    writer.add(std::array{static_cast<int32_t>(text[i])}, {true}, i == 0 || text[i - 1] == '0');
  writer.finish();
  Sampler known(folder / "tokens", o);
  TokenBatch again;
  known.fill(0, 2, again);
  EXPECT_EQ(again.ids, batch.ids);
  EXPECT_EQ(again.labels, batch.labels);
  EXPECT_EQ(again.starts, batch.starts);
  EXPECT_EQ(again.counted, batch.counted);
  const TokenFile file(folder / "tokens");
  EXPECT_EQ(file.starts_among(0, 17), (std::vector<int64_t>{0, 3, 7, 8}));
  EXPECT_EQ(file.starts_among(3, 5), (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(file.starts_among(9, 8), std::vector<int64_t>());
  // More documents than are read at once; then a list whose second half begins anew.
  TokenFileWriter many(folder / "many", 256);
  for (int i = 0; i < 600; ++i) many.add(std::array{7}, {true});
  many.finish();
  EXPECT_EQ(TokenFile(folder / "many").starts_among(10, 580).size(), 580U);
  std::string bytes = read_text_file(folder / "many", 1 << 20);
  const size_t list = bytes.size() - 32 - 600 * 8;
  write_text_file(folder / "many", bytes.replace(list + 266 * 8, 300 * 8, bytes.substr(list, 300 * 8)));
  EXPECT_THROW((void)TokenFile(folder / "many").starts_among(10, 580), Error);
}

TEST(Sampler, DataThatDoesNotFitIsRefused) {
  const TemporaryFolder folder;
  write_text_file(folder / "text", "short");
  EXPECT_THROW(Sampler(folder / "text", options(5)), Error);
  EXPECT_NO_THROW(Sampler(folder / "text", options(4)));
  Sampler::Options small = options(4);
  small.vocab = 200;
  EXPECT_THROW(Sampler(folder / "text", small), Error);
}

TEST(Sampler, OptionsThatMakeNoSenseAreRefused) {
  const TemporaryFolder folder;
  write_text_file(folder / "text", std::string(100, 'a'));
  for (const std::filesystem::path& path : {folder / "text", std::filesystem::path()}) {
    const auto refuse = [&](auto change, const char* text) {
      Sampler::Options o = options(4);
      change(o);
      expect_error([&] { Sampler(path, o); }, ErrorCode::invalid_argument, text);
    };
    refuse([](auto& o) { o.seq = 0; }, "seq");
    refuse([](auto& o) { o.seq = -3; }, "seq");
    refuse([](auto& o) { o.vocab = 0; }, "vocab");
    refuse([](auto& o) { o.vocab = int64_t{1} << 40; }, "vocab");
    refuse([](auto& o) { o.first_token = -5; }, "first token");
    refuse([](auto& o) { o.ignore_index = int64_t{1} << 40; }, "ignore index");
    refuse([](auto& o) { o.ignored_token = o.vocab; }, "outside the model's vocabulary");
    Sampler sampler(path, options(4));
    TokenBatch batch;
    expect_error([&] { sampler.fill(-1, 1, batch); }, ErrorCode::invalid_argument, "first sample");
    expect_error([&] { sampler.fill(0, -1, batch); }, ErrorCode::invalid_argument, "number of samples");
  }
}

// An ignore index that is also a token: its labels are left out of the loss, and so of the count.
TEST(Sampler, CountsWhatTheLossCounts) {
  const TemporaryFolder folder;
  write_text_file(folder / "text", "abcabcabc");
  Sampler::Options o = options(8);
  o.ignore_index = 'b';
  TokenBatch batch;
  Sampler(folder / "text", o).fill(0, 1, batch);
  EXPECT_EQ(batch.counted, 5);
}

}  // namespace
}  // namespace tigon::test
