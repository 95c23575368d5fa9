#include "scheduler/rendezvous_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace kronserve::scheduler {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

v1::GetRendezvousRequest Keys(const std::vector<std::string>& keys) {
  v1::GetRendezvousRequest request;
  for (const std::string& key : keys) request.add_keys(key);
  return request;
}

TEST(RendezvousBoardTest, ReturnsThoseThatAreThere) {
  RendezvousBoard board;
  ASSERT_THAT(board.Put("a", "1"), IsOk());
  ASSERT_THAT(board.Put("a", "2"), IsOk());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto response,
                                 board.Get(Keys({"b", "a"})));
  ASSERT_EQ(response.entries_size(), 1);
  EXPECT_EQ(response.entries(0).key(), "a");
  EXPECT_EQ(response.entries(0).value(), "2");
  board.Clear();
  EXPECT_EQ(board.Get(Keys({"a"}))->entries_size(), 0);
}

TEST(RendezvousBoardTest, RefusesBadKeys) {
  RendezvousBoard board;
  EXPECT_THAT(board.Put("", "1"), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("0 bytes")));
  EXPECT_THAT(
      board.Put(std::string(257, 'k'), "1"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("257 bytes")));
}

TEST(RendezvousBoardTest, RefusesValuesAbove64KiB) {
  RendezvousBoard board;
  EXPECT_THAT(board.Put("k", std::string(65536, 'v')), IsOk());
  EXPECT_THAT(board.Put("k", std::string(65537, 'v')),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("65537"), HasSubstr("65536"))));
  EXPECT_EQ(board.Get(Keys({"k"}))->entries(0).value().size(), 65536u);
}

TEST(RendezvousBoardTest, RefusesTooManyValues) {
  RendezvousBoard board;
  for (int i = 0; i < kMaxRendezvousEntries; ++i) {
    ASSERT_THAT(board.Put(absl::StrCat(i), ""), IsOk());
  }
  EXPECT_THAT(board.Put("one more", ""),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("16385"), HasSubstr("16384"))));
  EXPECT_THAT(board.Put("7", "replaced"), IsOk());
}

TEST(RendezvousBoardTest, RefusesTooManyBytes) {
  RendezvousBoard board;
  const std::string large(65536, 'v');
  absl::Status status;
  int stored = 0;
  for (; stored < 1000 && status.ok(); ++stored) {
    status = board.Put(absl::StrCat("key", stored), large);
  }
  // 512 x 64 KiB are 32 MiB, and the keys count too.
  EXPECT_EQ(stored, 512);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("33554432")));
}

TEST(RendezvousBoardTest, RefusesAReplyThatNoClientCouldReceive) {
  RendezvousBoard board;
  std::vector<std::string> keys;
  for (int i = 0; i < 49; ++i) {
    keys.push_back(absl::StrCat(i));
    ASSERT_THAT(board.Put(keys.back(), std::string(65536, 'v')), IsOk());
  }
  EXPECT_THAT(board.Get(Keys(keys)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("ask for fewer")));
  keys.resize(20);
  EXPECT_EQ(board.Get(Keys(keys))->entries_size(), 20);
}

}  // namespace
}  // namespace kronserve::scheduler
