#include "json/json.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tigon/core/error.hpp"

namespace tigon {

namespace {

constexpr size_t kDeepest = 32;

[[noreturn]] void refuse(const std::string& where, std::string what) {
  throw Error(ErrorCode::invalid_argument, {.where = where, .what = std::move(what), .expected = "valid JSON"});
}

// Builds our value while the library reads, so that duplicates and depth are seen as they come.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(std::string where) : where_(std::move(where)) {}
  Json take() { return std::move(root_); }

  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    // A larger one is a number still, though no whole one: a checksum, of which nobody asks.
    const bool whole = value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    return put(whole ? Json(static_cast<int64_t>(value)) : Json(static_cast<double>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { refuse(where_, "binary data"); }
  bool start_object(size_t) override { return open(true); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(false); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    Level& level = levels_.back();
    if (!level.keys.insert(name).second) refuse(where_, "the key '" + name + "' stands twice");
    level.key = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    refuse(where_, fmt::format("this is not JSON, from byte {} on", position));
  }

 private:
  struct Level {
    bool is_object;
    Json::Array array{};
    Json::Object object{};
    std::set<std::string> keys{};
    std::string key{};
  };

  bool put(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
    } else if (Level& level = levels_.back(); level.is_object) {
      level.object.emplace_back(std::move(level.key), std::move(value));
    } else {
      level.array.push_back(std::move(value));
    }
    return true;
  }
  bool open(bool is_object) {
    if (levels_.size() == kDeepest) refuse(where_, fmt::format("nested deeper than {} levels", kDeepest));
    levels_.push_back({.is_object = is_object});
    return true;
  }
  bool close() {
    Level done = std::move(levels_.back());
    levels_.pop_back();
    return put(done.is_object ? Json(std::move(done.object)) : Json(std::move(done.array)));
  }

  std::string where_;
  Json root_;
  std::vector<Level> levels_;
};

nlohmann::ordered_json to_library(const Json& value) {
  if (value.is_bool()) return value.boolean("");
  if (value.is_integer()) return value.integer("");
  if (value.is_number()) return value.number("");
  if (value.is_string()) return value.string("");
  if (value.is_array()) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const Json& element : value.array("")) array.push_back(to_library(element));
    return array;
  }
  if (value.is_object()) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (const auto& [key, member] : value.object("")) object[key] = to_library(member);
    return object;
  }
  return nullptr;
}

template <class T>
const T& expect(const T* value, const std::string& where, const char* type) {
  if (value != nullptr) return *value;
  throw Error(ErrorCode::invalid_argument, {.where = where, .what = "the value has the wrong type", .expected = type});
}

}  // namespace

Json Json::parse(std::string_view text, const std::string& where) {
  Builder builder(where);
  (void)nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string Json::dump(bool indented) const {
  // Bytes that are no UTF-8 (a name from outside) are replaced rather than thrown about.
  return to_library(*this).dump(indented ? 2 : -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

bool Json::boolean(const std::string& where) const {
  return expect(std::get_if<bool>(&value_), where, "true or false");
}
int64_t Json::integer(const std::string& where) const {
  return expect(std::get_if<int64_t>(&value_), where, "a whole number");
}
double Json::number(const std::string& where) const {
  if (is_integer()) return static_cast<double>(std::get<int64_t>(value_));
  return expect(std::get_if<double>(&value_), where, "a number");
}
const std::string& Json::string(const std::string& where) const {
  return expect(std::get_if<std::string>(&value_), where, "a string");
}
const Json::Array& Json::array(const std::string& where) const {
  return expect(std::get_if<Array>(&value_), where, "a list");
}
const Json::Object& Json::object(const std::string& where) const {
  return expect(std::get_if<Object>(&value_), where, "an object");
}

const Json* Json::find(std::string_view key) const noexcept {
  if (const Object* object = std::get_if<Object>(&value_)) {
    for (const auto& [name, value] : *object) {
      if (name == key) return &value;
    }
  }
  return nullptr;
}

void Json::set(std::string_view key, Json value) {
  if (!is_object()) value_ = Object();
  auto& object = std::get<Object>(value_);
  for (auto& [name, member] : object) {
    if (name == key) {
      member = std::move(value);
      return;
    }
  }
  object.emplace_back(std::string(key), std::move(value));
}

}  // namespace tigon
