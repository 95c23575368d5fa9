#include "client/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/messages.h"
#include "common/testing/status_matchers.h"

namespace kronserve::client {
namespace {

using ::kronserve::client::testing::MakeAnswer;
using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

std::vector<v1::GradientItem> Asked() {
  std::vector<v1::GradientItem> asked(2);
  for (int i = 0; i < 2; ++i) {
    asked[i].set_layer(10 + i);
    asked[i].set_rows(1);
    asked[i].set_cols(3);
  }
  return asked;
}

v1::PreconditionResponse Reply(const LayerAnswer& answer) {
  v1::PreconditionResponse response;
  *response.mutable_reply() = answer.reply;
  return response;
}

v1::PreconditionResponse Chunk(int item, uint64_t offset,
                               const std::vector<float>& values) {
  v1::PreconditionResponse response;
  v1::TensorChunk* chunk = response.mutable_chunk();
  chunk->set_item(item);
  chunk->set_offset(offset);
  chunk->set_data(values.data(), values.size() * sizeof(float));
  return response;
}

TEST(AnswerReader, AssemblesLayersInAnyOrder) {
  AnswerReader reader(Asked());
  auto second = Reply(MakeAnswer(1, 11, {1, 2, 3}));
  auto part = Chunk(1, 0, {1, 2});
  auto rest = Chunk(1, 8, {3});
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto none, reader.Add(&second));
  EXPECT_FALSE(none.has_value());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(none, reader.Add(&part));
  EXPECT_FALSE(none.has_value());
  KRONSERVE_ASSERT_OK_AND_ASSIGN(auto answer, reader.Add(&rest));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->reply.layer(), 11);
  EXPECT_EQ(answer->reply.version(), 1);
  EXPECT_THAT(*answer->values, ElementsAre(1, 2, 3));

  LayerAnswer fallback;
  fallback.reply.set_item(0);
  fallback.reply.set_layer(10);
  fallback.reply.set_outcome(v1::LAYER_OUTCOME_FALLBACK);
  auto first = Reply(fallback);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(answer, reader.Add(&first));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->values, nullptr);
  EXPECT_THAT(reader.Finish(), IsOk());
}

TEST(AnswerReader, RefusesDamagedValues) {
  AnswerReader reader(Asked());
  auto reply = Reply(MakeAnswer(0, 10, {1, 2, 3}));
  auto chunk = Chunk(0, 0, {1, 2, 4});
  ASSERT_THAT(reader.Add(&reply), IsOk());
  EXPECT_THAT(reader.Add(&chunk), StatusIs(kDataLoss, HasSubstr("checksum")));
}

TEST(AnswerReader, RefusesWhatWasNotAskedFor) {
  AnswerReader reader(Asked());
  auto other_layer = Reply(MakeAnswer(0, 11, {1, 2, 3}));
  EXPECT_THAT(reader.Add(&other_layer),
              StatusIs(kDataLoss, HasSubstr("item 0, layer 11")));
  auto other_item = Reply(MakeAnswer(2, 12, {1, 2, 3}));
  EXPECT_THAT(reader.Add(&other_item), StatusIs(kDataLoss, HasSubstr("2")));
  auto negative = Reply(MakeAnswer(-1, 12, {1, 2, 3}));
  EXPECT_THAT(reader.Add(&negative), StatusIs(kDataLoss, HasSubstr("-1")));
  v1::PreconditionResponse empty;
  EXPECT_THAT(reader.Add(&empty),
              StatusIs(kDataLoss, HasSubstr("without reply or chunk")));
}

TEST(AnswerReader, RefusesBrokenStreams) {
  AnswerReader early(Asked());
  auto chunk = Chunk(0, 0, {1, 2, 3});
  EXPECT_THAT(early.Add(&chunk),
              StatusIs(kDataLoss, HasSubstr("without its reply")));

  AnswerReader too_long(Asked());
  auto reply = Reply(MakeAnswer(0, 10, {1, 2, 3}));
  auto four = Chunk(0, 0, {1, 2, 3, 4});
  ASSERT_THAT(too_long.Add(&reply), IsOk());
  EXPECT_THAT(too_long.Add(&four),
              StatusIs(kDataLoss, HasSubstr("expected 12 bytes")));

  AnswerReader half(Asked());
  auto two = Chunk(0, 0, {1, 2});
  auto next = Reply(MakeAnswer(1, 11, {1, 2, 3}));
  ASSERT_THAT(half.Add(&reply), IsOk());
  ASSERT_THAT(half.Add(&two), IsOk());
  EXPECT_THAT(half.Add(&next), StatusIs(kDataLoss, HasSubstr("8 bytes")));
  EXPECT_THAT(half.Finish(), StatusIs(kDataLoss, HasSubstr("8 bytes")));

  AnswerReader unset(Asked());
  v1::PreconditionResponse no_outcome;
  no_outcome.mutable_reply()->set_layer(10);
  EXPECT_THAT(unset.Add(&no_outcome),
              StatusIs(kDataLoss, HasSubstr("outcome 0")));
}

TEST(AnswerReader, RefusesASecondReply) {
  AnswerReader reader(Asked());
  LayerAnswer fallback;
  fallback.reply.set_item(0);
  fallback.reply.set_layer(10);
  fallback.reply.set_outcome(v1::LAYER_OUTCOME_FALLBACK);
  auto reply = Reply(fallback);
  ASSERT_THAT(reader.Add(&reply), IsOk());
  EXPECT_THAT(reader.Add(&reply),
              StatusIs(kDataLoss, HasSubstr("answered before")));
}

}  // namespace
}  // namespace kronserve::client
