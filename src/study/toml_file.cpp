// A study from TOML. Every key is checked: a slip of the pen must not become another study.
#include <fmt/format.h>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "tigon/core/error.hpp"
#include "tigon/memory/sizes.hpp"
#include "tigon/study/study.hpp"

namespace tigon {

namespace {

class Reader {
 public:
  explicit Reader(std::string where) : where_(std::move(where)) {}

  Study study(const toml::table& root) const {
    Study s;
    Sweep plain;  // batches and sequences at the top
    for (const auto& [key, node] : root) {
      const std::string_view k = key.str();
      if (k == "name")
        s.name = folder_name(k, node);
      else if (k == "title")
        s.title = text(k, node);
      else if (k == "model")
        s.model = text(k, node);
      else if (k == "flags")
        s.flags = text(k, node);
      else if (k == "cap")
        s.cap_bytes = size(k, node);
      else if (k == "warmup")
        s.warmup = number(k, node, 1, 1000);
      else if (k == "steps")
        s.steps = number(k, node, 1, 100000);
      else if (k == "kernels")
        s.kernels = text(k, node);
      else if (k == "batches")
        plain.batches = numbers(k, node);
      else if (k == "seqs")
        plain.seqs = numbers(k, node);
      else if (k == "strategy")
        for_tables(k, node, [&](const toml::table& t) { s.strategies.push_back(strategy(t)); });
      else if (k == "sweep")
        for_tables(k, node, [&](const toml::table& t) { s.sweeps.push_back(sweep(t)); });
      else
        refuse(node, fmt::format("'{}' is not known", k),
               "name, title, model, flags, cap, warmup, steps, kernels, "
               "batches, seqs, [[strategy]] or [[sweep]]");
    }
    if (!plain.batches.empty() || !plain.seqs.empty()) s.sweeps.insert(s.sweeps.begin(), std::move(plain));
    return s;
  }

 private:
  Strategy strategy(const toml::table& table) const {
    Strategy s;
    for (const auto& [key, node] : table) {
      const std::string_view k = key.str();
      if (k == "name")
        s.name = text(k, node);
      else if (k == "title")
        s.title = text(k, node);
      else if (k == "flags")
        s.flags = text(k, node);
      else
        refuse(node, fmt::format("a strategy has no '{}'", k), "name, title or flags");
    }
    if (s.title.empty()) s.title = s.name;
    return s;
  }

  Sweep sweep(const toml::table& table) const {
    Sweep s;
    for (const auto& [key, node] : table) {
      const std::string_view k = key.str();
      if (k == "batches")
        s.batches = numbers(k, node);
      else if (k == "seqs")
        s.seqs = numbers(k, node);
      else if (k == "accumulate")
        s.accumulate = number(k, node, 1, kMostMicroBatches);
      else if (k == "strategies")
        s.strategies = texts(k, node);
      else
        refuse(node, fmt::format("a sweep has no '{}'", k), "batches, seqs, accumulate or strategies");
    }
    return s;
  }

  [[noreturn]] void refuse(const toml::node& node, std::string what, std::string expected) const {
    throw Error(ErrorCode::invalid_argument, {.where = fmt::format("{}, line {}", where_, node.source().begin.line),
                                              .what = std::move(what),
                                              .expected = std::move(expected)});
  }

  std::string text(std::string_view key, const toml::node& node) const {
    if (!node.is_string()) refuse(node, fmt::format("'{}' is no text", key), "a text in quotation marks");
    return node.as_string()->get();
  }
  // The folder of a study is named after it.
  std::string folder_name(std::string_view key, const toml::node& node) const {
    std::string name = text(key, node);
    if (name.find('/') != std::string::npos) refuse(node, fmt::format("'{}' is no name for a folder", name), "no /");
    return name;
  }
  int64_t number(std::string_view key, const toml::node& node, int64_t least, int64_t most) const {
    const auto* value = node.as_integer();
    if (value == nullptr || value->get() < least || value->get() > most)
      refuse(node, fmt::format("'{}' is no such number", key),
             fmt::format("a whole number from {} to {}", least, most));
    return value->get();
  }
  int64_t size(std::string_view key, const toml::node& node) const {
    try {
      return bytes_from_string(text(key, node));
    } catch (const Error& error) {
      refuse(node, fmt::format("'{}': {}", key, error.what()), "such as \"24GiB\"");
    }
  }
  template <class Item>
  auto list(std::string_view key, const toml::node& node, const Item& item) const {
    const toml::array* array = node.as_array();
    if (array == nullptr) refuse(node, fmt::format("'{}' is no list", key), "a list in brackets");
    std::vector<decltype(item(key, node))> items;
    for (const toml::node& entry : *array) items.push_back(item(key, entry));
    return items;
  }
  std::vector<int64_t> numbers(std::string_view key, const toml::node& node) const {
    return list(key, node,
                [this](std::string_view k, const toml::node& n) { return number(k, n, 1, kLongestSequence); });
  }
  std::vector<std::string> texts(std::string_view key, const toml::node& node) const {
    return list(key, node, [this](std::string_view k, const toml::node& n) { return text(k, n); });
  }
  template <class Work>
  void for_tables(std::string_view key, const toml::node& node, const Work& work) const {
    const toml::array* array = node.as_array();
    if (array == nullptr || !array->is_array_of_tables())
      refuse(node, fmt::format("'{}' is no list of tables", key), fmt::format("[[{}]]", key));
    for (const toml::node& entry : *array) work(*entry.as_table());
  }

  std::string where_;
};

}  // namespace

Study study_from_toml(std::string_view text, const std::string& where) {
  try {
    return Reader(where).study(toml::parse(text, where));
  } catch (const toml::parse_error& error) {
    throw Error(ErrorCode::invalid_argument, {.where = fmt::format("{}, line {}", where, error.source().begin.line),
                                              .what = fmt::format("this is not TOML: {}", error.description())});
  }
}

}  // namespace tigon
