// What needs no other tokenizer to compare with: files that are refused, streams, long texts. The rest is compared with
// PyPI's `tokenizers` in tests/text/*.py.
#include "tigon/text/tokenizer.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "json/json.hpp"
#include "text/regex.hpp"
#include "text/word_cache.hpp"
#include "tigon/core/error.hpp"

namespace tigon {
namespace {

// Bytes by ByteLevel, of which a few merge.
const std::string kBytes = R"({"version":"1.0","added_tokens":[],"normalizer":null,
  "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},"decoder":{"type":"ByteLevel"},
  "post_processor":null,"model":{"type":"BPE","vocab":{"a":0,"b":1,"Ġ":2,"ab":3,"Ġab":4,"ð":5,"Ł":6,"Ļ":7,"Ĥ":8,"aa":9,"aaaa":10},
  "merges":["a b","Ġ ab","a a","aa aa"]}})";

std::string with(const std::string& from, const std::string& to) {
  std::string file = kBytes;
  const size_t at = file.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return file.replace(at, from.size(), to);
}

std::string message_of(const std::string& file) {
  try {
    (void)Tokenizer::parse(file, "tokenizer.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

void expect_refused(const std::string& file, const std::vector<std::string>& words) {
  const std::string message = message_of(file);
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
}

TEST(Tokenizer, MergesInTheOrderOfTheFile) {
  const Tokenizer tokenizer = Tokenizer::parse(kBytes, "");
  EXPECT_EQ(tokenizer.encode("ab ab"), (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(tokenizer.encode("aab"), (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(tokenizer.encode("aaaaa"), (std::vector<int32_t>{10, 0}));
  EXPECT_EQ(tokenizer.encode("a?b"), (std::vector<int32_t>{0, 1})) << "a byte that has no token is dropped";
  EXPECT_EQ(tokenizer.vocab(), 11);
}

TEST(Tokenizer, RefusesByNameWhatItDoesNotKnow) {
  expect_refused(with(R"("type":"BPE")", R"("type":"Unigram")"), {"Unigram", "BPE", "model"});
  expect_refused(with(R"("normalizer":null)", R"("normalizer":{"type":"Lowercase"})"), {"Lowercase", "normalizer"});
  expect_refused(with(R"("normalizer":null)",
                      R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"NFKD"}]})"),
                 {"normalizer, normalizers[1]", "NFKD"});
  expect_refused(
      with(R"("normalizer":null)", R"("normalizer":{"type":"Replace","pattern":{"Regex":" +"},"content":""})"),
      {"plain text", " +"});
  expect_refused(with(R"("type":"ByteLevel","add)", R"("type":"BertPreTokenizer","add)"), {"BertPreTokenizer"});
  expect_refused(with(R"("use_regex":true)", R"("use_regex":true,"magic":1)"), {"magic", "pre_tokenizer"});
  expect_refused(with(R"("decoder":{"type":"ByteLevel"})", R"("decoder":{"type":"WordPiece"})"),
                 {"WordPiece", "decoder"});
  expect_refused(with(R"("post_processor":null)", R"("post_processor":{"type":"RobertaProcessing"})"),
                 {"RobertaProcessing"});
  expect_refused(with(R"("type":"BPE")", R"("type":"BPE","dropout":0.1)"), {"dropout", "chance"});
  expect_refused(with(R"("type":"BPE")", R"("type":"BPE","end_of_word_suffix":"</w>")"), {"end_of_word_suffix"});
  expect_refused(with(R"("type":"BPE")", R"("type":"BPE","byte_fallback":true)"), {"byte_fallback"});
  expect_refused(with(R"("type":"BPE")", R"("type":"BPE","unk_token":"?")"), {"unk_token", "no such token"});
}

TEST(Tokenizer, RefusesFilesThatContradictThemselves) {
  expect_refused("{", {"JSON"});
  expect_refused("[]", {"tokenizer.json"});
  expect_refused("{}", {"model"});
  expect_refused(with(R"("b":1)", R"("b":0)"), {"two tokens", "0"});
  expect_refused(with(R"("b":1)", R"("b":-1)"), {"out of range", "-1"});
  expect_refused(with(R"("b":1)", R"("b":99999999999)"), {"out of range"});
  expect_refused(with(R"("b":1)", R"("b":4194304)"), {"out of range"});  // ids are an index, which takes memory
  expect_refused(with(R"("a b")", R"("a c")"), {"merges[0]", "no such token", "c"});
  expect_refused(with(R"("a b")", R"("b a")"), {"merges[0]", "no such token", "ba"});
  expect_refused(with(R"("a b")", R"("ab")"), {"merges[0]", "two parts"});
  expect_refused(with(R"("a b")", R"(["a","b","a"])"), {"merges[0]", "two parts"});
  const auto added = [](const std::string& token) {
    return with(R"("added_tokens":[])", R"("added_tokens":[)" + token + "]");
  };
  EXPECT_EQ(Tokenizer::parse(added(R"({"id":11,"content":"<e>","special":true})"), "").encode("a<e>b"),
            (std::vector<int32_t>{0, 11, 1}));
  expect_refused(added(R"({"id":12,"content":"<e>"})"), {"11", "12"});
  expect_refused(added(R"({"id":2,"content":"<e>"})"), {"11", "2"});
  expect_refused(added(R"({"id":1,"content":"a"})"), {"0", "1"});
  expect_refused(added(R"({"id":11,"content":"x"},{"id":11,"content":"x"})"), {"twice"});
}

TEST(Tokenizer, AStreamGivesACharacterWhenItIsWhole) {
  const Tokenizer tokenizer = Tokenizer::parse(kBytes, "");
  StreamDecoder stream(tokenizer);
  const std::string smile = "\xF0\x9F\x99\x82";
  EXPECT_EQ(stream.push(0), "a");
  for (const int32_t id : {5, 6, 7}) EXPECT_EQ(stream.push(id), "");
  EXPECT_EQ(stream.push(8), smile);
  EXPECT_EQ(stream.push(5), "");
  EXPECT_EQ(stream.push(0),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(stream.push(5), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(Tokenizer, WhatWasEncodedBeforeChangesNothing) {
  const Tokenizer tokenizer = Tokenizer::parse(kBytes, "");
  TextEncoder encoder(tokenizer);
  std::vector<int32_t> ids;
  // More words than are remembered.
  for (uint32_t i = 0; i < 400'000; ++i) {
    std::string word;
    for (uint32_t bits = i + 1; bits != 0; bits /= 2) word.push_back(bits % 2 != 0 ? 'a' : 'b');
    ids.clear();
    encoder.encode(word, ids);
    ASSERT_EQ(tokenizer.decode(ids), word);
    if (i % 1009 == 0) {
      ASSERT_EQ(ids, tokenizer.encode(word));
    }
  }
}

TEST(WordCache, AZeroAtTheEndIsOfTheWord) {
  WordCache cache;
  for (uint32_t i = 0; i < 1'000'000; ++i) {
    std::string word = std::to_string(i);
    cache.put(WordCache::Key(word), std::array{7});
    word.push_back('\0');
    ASSERT_TRUE(cache.find(WordCache::Key(word)).empty()) << i;
  }
}

TEST(Tokenizer, ALetterThatBecomesALibraryIsRefusedBeforeMemoryIsTaken) {
  const auto replace = [](const char* pattern, char content, size_t count) {
    return R"({"type":"Replace","pattern":{"String":")" + std::string(pattern) + R"("},"content":")" +
           std::string(count, content) + R"("})";
  };
  const std::string steps = replace("a", 'c', 1000) + "," + replace("c", 'd', 1000) + "," + replace("d", 'e', 10'000);
  const Tokenizer tokenizer = Tokenizer::parse(
      with(R"("normalizer":null)", R"("normalizer":{"type":"Sequence","normalizers":[)" + steps + "]}"), "");
  EXPECT_EQ(tokenizer.encode("b"), (std::vector<int32_t>{1}));
  EXPECT_THROW((void)tokenizer.encode("a"), Error);
}

// Ten times the text would take a hundred times as long, if anything took the square of it.
TEST(Tokenizer, LongRunsTakeTimeByTheirLength) {
  const Tokenizer bytes = Tokenizer::parse(kBytes, "");
  const Tokenizer normalized = Tokenizer::parse(with(R"("normalizer":null)", R"("normalizer":{"type":"NFC"})"), "");
  const auto seconds = [](const Tokenizer& tokenizer, std::string_view unit, size_t bytes_in_all) {
    std::string text;
    while (text.size() < bytes_in_all) text += unit;
    const auto begin = std::chrono::steady_clock::now();
    (void)tokenizer.encode(text);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (const char* unit : {"a", "ab", " ", " \n", "\n", "'", "1", "\xCC\x81\xCC\xA3", "\xFF", "\xEA\xB0\x80"}) {
    for (const Tokenizer& tokenizer : {bytes, normalized}) {
      const double small = seconds(tokenizer, unit, 100'000), large = seconds(tokenizer, unit, 1'000'000);
      EXPECT_LT(large, 40 * small + 0.5) << unit;
    }
  }
}

TEST(Tokenizer, MarksTakeTimeByTheirNumber) {
  TextEncoder encoder(Tokenizer::parse(kBytes, ""));
  const auto seconds = [&](size_t count) {
    std::string text;
    std::vector<size_t> marks;
    for (size_t i = 0; i < count; ++i) {
      marks.insert(marks.end(), {text.size() + 2, text.size() + 4});  // between two tokens, and within one
      text += "ab ab";
    }
    std::vector<int32_t> ids;
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<size_t> places = encoder.encode_with_marks(text, marks, ids);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(ids.size(), 2 * count);
    for (size_t i = 0; i < 2 * count; ++i) EXPECT_EQ(places[i], i / 2 * 2 + 1);
    return time.count();
  };
  const double few = seconds(1000), many = seconds(20'000);
  EXPECT_LT(many, 80 * few + 0.5);
}

TEST(Regex, SpaceIsWhatUnicodeCallsWhiteSpace) {
  RegexScratch scratch;
  const Regex space(R"(\s)", ""), rest(R"([^\s])", ""), none(R"(\S)", "");
  for (const char* text : {" ", "\t", "\v", "\xC2\x85", "\xC2\xA0", "\xE3\x80\x80", "\xE2\x80\xA8"}) {
    EXPECT_TRUE(space.find(text, 0, scratch)) << text;
    EXPECT_FALSE(rest.find(text, 0, scratch) || none.find(text, 0, scratch)) << text;
  }
  for (const char* text : {"a", "\xE1\xA0\x8E", "\xE2\x80\x8B", "\x1C"}) {
    EXPECT_FALSE(space.find(text, 0, scratch)) << text;
    EXPECT_TRUE(rest.find(text, 0, scratch) && none.find(text, 0, scratch)) << text;
  }
}

TEST(Regex, RefusesWhatMeansSomethingElseElsewhere) {
  for (const char* pattern :
       {R"(^a)",         R"(a$)",    R"(\ba)",         R"(\Aa)",     R"(\ha)",     R"([a[b]])", R"([a&&b])",
        R"([\S])",       R"(a{,3})", R"(a{1,3}+)",     R"((?m:a))",  R"((?<n>a))", R"((a)\1)",  R"(\p{^L})",
        R"(\p{Alpha}x)", R"(\xE9)",  R"([[:alpha:]])", R"((*FAIL))", R"(\K)",      R"([])",     R"([a)",
        R"(\)",          R"((a)",    R"(a|)",          R"(a*)"}) {
    EXPECT_THROW(Regex(pattern, "here"), Error) << pattern;
  }
}

}  // namespace
}  // namespace tigon
