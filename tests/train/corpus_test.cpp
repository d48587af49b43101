// Files of a corpus in pieces.
#include "train/corpus.hpp"

#include <gtest/gtest.h>

#include "text/utf8.hpp"
#include "tigon/storage/files.hpp"
#include "train/small_model.hpp"

namespace tigon {
namespace {

using test::TemporaryFolder;

std::vector<CorpusPiece> pieces_of(const std::filesystem::path& file) {
  Corpus corpus({file});
  std::vector<CorpusPiece> pieces;
  for (CorpusPiece piece; corpus.next(piece);) pieces.push_back(piece);
  return pieces;
}

constexpr size_t kMiB = size_t{1} << 20;

std::string repeated(std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

TEST(Corpus, ATextIsCutWhereItCanBe) {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& text, auto good_end) {
    write_text_file(folder / "text", text);
    std::string whole;
    int64_t line = 1;
    const std::vector<CorpusPiece> pieces = pieces_of(folder / "text");
    for (size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_LE(pieces[i].text.size(), 4 * kMiB);
      EXPECT_EQ(pieces[i].bytes, static_cast<int64_t>(pieces[i].text.size()));
      EXPECT_EQ(pieces[i].begins, i == 0);
      EXPECT_EQ(pieces[i].ends, i + 1 == pieces.size());
      EXPECT_EQ(pieces[i].first_line, line);
      line += std::count(pieces[i].text.begin(), pieces[i].text.end(), '\n');
      whole += pieces[i].text;
      EXPECT_TRUE(i + 1 == pieces.size() || good_end(pieces[i].text, pieces[i + 1].text));
    }
    EXPECT_TRUE(whole == text);
    EXPECT_GE(pieces.size(), 3u);
  };
  const std::string words = repeated("one two ", 9 * kMiB), lines = repeated("one\ntwo\n", 9 * kMiB);
  check(lines, [](const std::string& text, const std::string&) { return text.ends_with('\n'); });
  check(words, [](const std::string&, const std::string& next) { return next.starts_with(' '); });
  check("a title\n" + words,
        [](const std::string& text, const std::string& next) { return text.ends_with('\n') || next.starts_with(' '); });
  const auto whole_characters = [](const std::string& text, const std::string&) {
    return valid_utf8(text) == text.size();
  };
  check("a" + repeated("\xF0\x9F\x99\x82", 9 * kMiB), whole_characters);
  check("aa" + repeated("\xE6\xBC\xA2", 9 * kMiB), whole_characters);
  check(repeated("\xFF", 9 * kMiB), [](const std::string&, const std::string&) { return true; });
}

TEST(Corpus, ALineThatIsTooLongIsLeftOutAndTheOthersAreNot) {
  const TemporaryFolder folder;
  const std::string short_lines = "{}\n{}\n", long_line(kLongestLine + 3 * kMiB, 'x');
  for (const std::string& text :
       {short_lines + long_line + "\n" + short_lines, long_line + "\n" + short_lines, short_lines + long_line}) {
    write_text_file(folder / "a.jsonl", text);
    std::string kept;
    std::vector<int64_t> left_out;
    int64_t bytes = 0, lines = 0;
    for (const CorpusPiece& piece : pieces_of(folder / "a.jsonl")) {
      EXPECT_EQ(piece.first_line, lines + 1);
      kept += piece.text;
      lines += piece.too_long ? 1 : std::count(piece.text.begin(), piece.text.end(), '\n');
      if (piece.too_long) left_out.push_back(piece.first_line);
      bytes += piece.bytes;
    }
    EXPECT_EQ(bytes, static_cast<int64_t>(text.size()));
    EXPECT_EQ(left_out, std::vector<int64_t>{text[0] == 'x' ? 1 : 3});
    EXPECT_EQ(kept.size() + long_line.size() + (text.ends_with('x') ? 0 : 1), text.size());
    EXPECT_EQ(kept.find('x'), std::string::npos);
  }
}

}  // namespace
}  // namespace tigon
