#pragma once

#include <string>

#include "json/json.hpp"

namespace tigon::report {

// A copy of `value` that has the shape of an example, with nothing in it that the example does not name; Error
// otherwise. In the example "" stands for any text, 0 for a whole number that is not negative, 0.5 for any number, true
// for true or false, [x] for a list of such and {"a": x} for an object. A member whose name ends in "?" may be absent
// or null; the name "*" stands for any number of members. `where` says which file it is, in errors.
Json shaped(const Json& value, const Json& example, const std::string& where);

}  // namespace tigon::report
