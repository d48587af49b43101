// What a run that was stopped leaves beside its output, so that the next one goes on.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tigon/train/data.hpp"
#include "tigon/train/tokenize.hpp"
#include "train/corpus.hpp"

namespace tigon {

struct TokenizeJournal {
  std::string key;  // tokenize_key() of what was asked for
  Corpus::Place place;
  TokenFileWriter::Mark mark;
  TokenizeReport report;  // so far
};

// Nothing where there is none, or one of something else.
std::optional<TokenizeJournal> read_journal(const std::filesystem::path& file, const std::string& key);

void write_journal(const std::filesystem::path& file, const TokenizeJournal& journal);

}  // namespace tigon
