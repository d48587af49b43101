#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tigon/core/error.hpp"

namespace tigon::test {

// `call` throws an Error of this kind whose message contains `text`.
template <class Call>
void expect_error(const Call& call, ErrorCode code, const std::string& text) {
  try {
    call();
    ADD_FAILURE() << "no error; expected one saying: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
        << "message: " << error.what() << "\nlacks: " << text;
  }
}

}  // namespace tigon::test
