#include "tigon/storage/files.hpp"

#include <gtest/gtest.h>

#include "train/small_model.hpp"

namespace tigon::test {
namespace {

TEST(ExchangeNames, SwapsOrChangesNothing) {
  const TemporaryFolder folder;
  make_folder(folder / "a");
  make_folder(folder / "b");
  write_text_file(folder / "a/name", "a");
  write_text_file(folder / "b/name", "b");
  EXPECT_FALSE(exchange_names(folder / "a", folder / "none"));
  EXPECT_EQ(read_text_file(folder / "a/name", 9), "a");
  if (!exchange_names(folder / "a", folder / "b")) GTEST_SKIP() << "this file system cannot exchange names";
  EXPECT_EQ(read_text_file(folder / "a/name", 9) + read_text_file(folder / "b/name", 9), "ba");
}

}  // namespace
}  // namespace tigon::test
