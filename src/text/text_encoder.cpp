#include <algorithm>
#include <string>

#include "text/tokenizer_parts.hpp"
#include "text/utf8.hpp"
#include "text/word_cache.hpp"
#include "tigon/core/error.hpp"
#include "tigon/text/tokenizer.hpp"

namespace tigon {

struct TextEncoder::State {
  explicit State(std::shared_ptr<const TokenizerParts> all) : parts(std::move(all)) {}

  // Where a byte of the text and an id stand at the same place.
  struct Place {
    size_t byte, id;
  };
  Place agreement(std::string_view text, Place from, size_t mark, std::span<const int32_t> ids);
  std::vector<size_t> encode_sections(std::string_view text, std::span<const size_t> marks, std::vector<int32_t>& ids);
  void encode_text(std::string_view text, bool first, std::vector<int32_t>& ids);
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids);
  void encode_word(std::string_view word, std::vector<int32_t>& ids);

  std::shared_ptr<const TokenizerParts> parts;
  WordCache words;
  RegexScratch regex;
  Bpe::Scratch scratch;
};

TextEncoder::TextEncoder(const Tokenizer& tokenizer) : state_(std::make_unique<State>(tokenizer.parts_)) {}
TextEncoder::~TextEncoder() = default;
TextEncoder::TextEncoder(TextEncoder&&) noexcept = default;
TextEncoder& TextEncoder::operator=(TextEncoder&&) noexcept = default;

void TextEncoder::encode(std::string_view text, std::vector<int32_t>& ids, bool special) {
  check_text_length(text.size());
  std::string repaired;
  if (valid_utf8(text) != text.size()) text = repaired = repaired_utf8(text);
  const PostProcessor& around = state_->parts->post_processor;
  if (special) ids.insert(ids.end(), around.before.begin(), around.before.end());
  state_->encode_sections(text, {}, ids);
  if (special) ids.insert(ids.end(), around.after.begin(), around.after.end());
}

std::vector<size_t> TextEncoder::encode_with_marks(std::string_view text, std::span<const size_t> marks,
                                                   std::vector<int32_t>& ids) {
  if (valid_utf8(text) != text.size())
    throw Error(ErrorCode::invalid_argument, {.where = "tokenizer", .what = "the text is no UTF-8"});
  return state_->encode_sections(text, marks, ids);
}

// Added tokens stand for themselves, so that the text between two of them is encoded alone. So is the part of it before
// a mark: as long as its ids are those of the whole, they are of nothing else.
std::vector<size_t> TextEncoder::State::encode_sections(std::string_view text, std::span<const size_t> marks,
                                                        std::vector<int32_t>& ids) {
  std::vector<Section> sections;
  parts->added.find(text, false, sections);
  std::vector<size_t> places;
  for (const Section& section : sections) {
    const Place begin{section.begin, ids.size()};
    if (section.id >= 0) {
      ids.push_back(section.id);
    } else {
      encode_text(text.substr(section.begin, section.end - section.begin), section.begin == 0, ids);
    }
    Place exact = begin;
    while (places.size() < marks.size() && marks[places.size()] < section.end) {
      const size_t mark = section.id < 0 ? marks[places.size()] : section.begin;
      const Place place = agreement(text, exact, mark, ids);
      // Where each text begins in a way of its own, none can be cut in between.
      if (place.byte == mark && !parts->begins_each()) exact = place;
      places.push_back(place.id);
    }
  }
  places.resize(marks.size(), ids.size());
  return places;
}

// How far the ids of the text from a place to a mark are those of the whole; the mark as the byte where all are, else
// the place's own.
TextEncoder::State::Place TextEncoder::State::agreement(std::string_view text, Place from, size_t mark,
                                                        std::span<const int32_t> ids) {
  std::vector<int32_t> before;
  if (mark > from.byte) encode_text(text.substr(from.byte, mark - from.byte), from.byte == 0, before);
  const auto whole = ids.subspan(from.id);
  const auto same = std::mismatch(before.begin(), before.end(), whole.begin(), whole.end());
  const auto count = static_cast<size_t>(same.first - before.begin());
  return {count == before.size() ? mark : from.byte, from.id + count};
}

void TextEncoder::State::encode_text(std::string_view text, bool first, std::vector<int32_t>& ids) {
  std::string normalized;
  if (!parts->normalizer.empty()) text = normalized = parts->normalizer.apply(text);
  std::vector<Section> sections;
  parts->added.find(text, true, sections);
  for (const Section& section : sections) {
    if (section.id >= 0) {
      ids.push_back(section.id);
      continue;
    }
    Pieces pieces;
    pieces.text = text.substr(section.begin, section.end - section.begin);
    pieces.first = first && section.begin == 0;
    pieces.ranges = {{0, pieces.text.size()}};
    parts->pre_tokenizer.apply(pieces, regex);
    for (const Pieces::Range& range : pieces.ranges) encode_piece(pieces.piece(range), ids);
  }
}

void TextEncoder::State::encode_piece(std::string_view piece, std::vector<int32_t>& ids) {
  while (!piece.empty()) {
    const size_t end = parts->model.word_end(piece);
    encode_word(piece.substr(0, end), ids);
    piece.remove_prefix(end);
  }
}

void TextEncoder::State::encode_word(std::string_view word, std::vector<int32_t>& ids) {
  if (!WordCache::fits(word)) {
    parts->model.encode(word, scratch, ids);
    return;
  }
  const WordCache::Key key(word);
  const std::span<const int32_t> known = words.find(key);
  if (!known.empty()) {
    ids.insert(ids.end(), known.begin(), known.end());
    return;
  }
  const size_t begin = ids.size();
  parts->model.encode(word, scratch, ids);
  words.put(key, std::span(ids).subspan(begin));
}

}  // namespace tigon
