#include "text/metaspace.hpp"

namespace tigon {

namespace {

using Prepend = MetaspaceSettings::Prepend;

Prepend prepend_of(const Field& field) {
  // Older files say yes or no.
  const bool old = field.boolean_or("add_prefix_space", true);
  if (!field.has("prepend_scheme")) return old ? Prepend::always : Prepend::never;
  const std::string& scheme = field["prepend_scheme"].string();
  if (!old && scheme != "never") field.refuse("add_prefix_space is not what prepend_scheme says", "never", scheme);
  if (scheme == "always") return Prepend::always;
  if (scheme == "first") return Prepend::first;
  if (scheme == "never") return Prepend::never;
  field.refuse("this prepend_scheme is not known", "always, first, never", scheme);
}

}  // namespace

MetaspaceSettings::MetaspaceSettings(const Field& field)
    : replacement(field["replacement"].character()),
      prepend(prepend_of(field)),
      split(field.boolean_or("split", true)) {
  field.only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
}

}  // namespace tigon
