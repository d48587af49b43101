#include "text/decoder.hpp"

#include <utility>

#include "text/metaspace.hpp"
#include "text/normalizer.hpp"

namespace tigon {

namespace {

// Where the text ends up.
class Sink final : public DecodeStep {
 public:
  void part(std::string_view text) override { text_.append(text); }
  void end_token() override {}
  void finish() override {}
  std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

}  // namespace

Decoder::Decoder(const Field& field) {
  add(field);
  if (field.json.is_null()) makers_.emplace_back(make_join_decoding);
}

void Decoder::add(const Field& field) {
  if (field.json.is_null()) return;
  const std::string type = field.type();
  if (type == "Sequence") {
    field.only({"type", "decoders"});
    for (const Field& part : field["decoders"].elements()) add(part);
  } else if (type == "ByteLevel") {
    field.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    makers_.emplace_back(make_byte_level_decoding);
  } else if (type == "ByteFallback") {
    field.only({"type"});
    makers_.emplace_back(make_byte_fallback_decoding);
  } else if (type == "Fuse") {
    field.only({"type"});
    makers_.emplace_back(make_fuse_decoding);
  } else if (type == "Strip") {
    field.only({"type", "content", "start", "stop"});
    constexpr int64_t kMost = 1 << 20;
    makers_.emplace_back([content = field["content"].character(),
                          start = static_cast<size_t>(field["start"].integer(0, kMost)),
                          stop = static_cast<size_t>(field["stop"].integer(0, kMost))] {
      return make_strip_decoding(content, start, stop);
    });
  } else if (type == "Replace") {
    field.only({"type", "pattern", "content"});
    makers_.emplace_back([pattern = plain_pattern(field["pattern"]), content = field["content"].string()] {
      return make_replace_decoding(pattern, content);
    });
  } else if (type == "Metaspace") {
    const MetaspaceSettings settings(field);
    makers_.emplace_back([=] {
      return make_metaspace_decoding(settings.replacement, settings.prepend != MetaspaceSettings::Prepend::never);
    });
  } else {
    field.refuse("this decoder is not known", "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, Sequence",
                 type);
  }
}

Decoder::Stream::Stream(const Decoder& decoder) {
  for (const auto& make : decoder.makers_) steps_.push_back(make());
  steps_.push_back(std::make_unique<Sink>());
  for (size_t i = 0; i + 1 < steps_.size(); ++i) steps_[i]->lead_to(*steps_[i + 1]);
}

void Decoder::Stream::push(std::string_view token) {
  steps_[0]->part(token);
  steps_[0]->end_token();
}

void Decoder::Stream::finish() { steps_[0]->finish(); }

std::string Decoder::Stream::take() { return static_cast<Sink&>(*steps_.back()).take(); }

}  // namespace tigon
