#include "train/tokenize_journal.hpp"

#include <fmt/format.h>

#include "json/json.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"

namespace tigon {

namespace fs = std::filesystem;

std::string tokenize_key(const TokenizeOptions& options) {
  // A text may be too long to be read twice.
  std::string key = fmt::format("2\n{}\n{}\n{}\n{}", options.chat_template, options.learn_all, options.end_of_text,
                                options.text_field);
  for (const fs::path& input : options.inputs) {
    key += fmt::format("\n{}\n{}\n{}", fs::canonical(input).string(), fs::file_size(input),
                       fs::last_write_time(input).time_since_epoch().count());
  }
  const bool folder = fs::is_directory(options.tokenizer);
  const fs::path file = folder ? options.tokenizer / "tokenizer.json" : options.tokenizer;
  for (const fs::path& part :
       {file, file.parent_path() / "tokenizer_config.json", file.parent_path() / "chat_template.jinja"})
    key += fs::exists(part) ? fmt::format("\n{:016x}", file_checksum(part)) : "\nnone";
  return fmt::format("{:016x}", text_checksum(key));
}

std::optional<TokenizeJournal> read_journal(const fs::path& file, const std::string& key) {
  constexpr int64_t kMost = int64_t{1} << 20;
  const std::string where = file.string();
  if (!fs::exists(file)) return std::nullopt;
  try {
    const Json json = Json::parse(read_text_file(file, kMost), where);
    const auto field = [&](const char* name) -> const Json& {
      const Json* value = json.find(name);
      if (value == nullptr) throw Error(ErrorCode::invalid_argument, {.where = where, .what = "it lacks a field"});
      return *value;
    };
    const auto number = [&](const char* name) { return field(name).integer(where); };
    if (field("key").string(where) != key) return std::nullopt;
    TokenizeJournal journal{
        .key = key,
        .place = {.file = static_cast<size_t>(number("file")),
                  .byte = number("byte"),
                  .line = number("line"),
                  .begins = field("begins").boolean(where),
                  .done = number("done")},
        .mark = {.tokens = number("tokens"), .learnt = number("learnt"), .list_bytes = number("list_bytes")},
        .report = {}};
    journal.report.documents = number("documents");
    journal.report.repaired = number("repaired");
    for (const Json& dropped : field("dropped").array(where)) {
      const Json::Array& parts = dropped.array(where);
      TokenizeReport::Dropped& more = journal.report.dropped.emplace_back();
      more.why = parts.at(0).string(where);
      more.lines = parts.at(1).integer(where);
      for (size_t i = 2; i < parts.size(); ++i) more.first.push_back(parts[i].string(where));
    }
    return journal;
  } catch (const std::exception&) {
    return std::nullopt;  // broken: all is done anew
  }
}

void write_journal(const fs::path& file, const TokenizeJournal& journal) {
  Json json;
  json.set("key", journal.key);
  json.set("file", static_cast<int64_t>(journal.place.file));
  json.set("byte", journal.place.byte);
  json.set("line", journal.place.line);
  json.set("begins", journal.place.begins);
  json.set("done", journal.place.done);
  json.set("tokens", journal.mark.tokens);
  json.set("learnt", journal.mark.learnt);
  json.set("list_bytes", journal.mark.list_bytes);
  json.set("documents", journal.report.documents);
  json.set("repaired", journal.report.repaired);
  Json::Array all;
  for (const TokenizeReport::Dropped& dropped : journal.report.dropped) {
    Json::Array parts = {dropped.why, dropped.lines};
    for (const std::string& place : dropped.first) parts.emplace_back(place);
    all.emplace_back(std::move(parts));
  }
  json.set("dropped", std::move(all));
  write_text_file(file, json.dump());
}

}  // namespace tigon
