#include "checkpoint/markers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/folder.h"
#include "checkpoint/testing/store_fixture.h"

namespace kronserve::checkpoint {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using MarkersTest = FileStoreTest;

v1::ServerAddress Peer(const std::string& name, uint64_t incarnation) {
  v1::ServerAddress peer;
  peer.set_name(name);
  peer.set_incarnation(incarnation);
  return peer;
}

TEST_F(MarkersTest, PeersInTheSameDirectorySeeOneAnother) {
  const auto other = Open("s2", 0xabcdef);
  EXPECT_THAT(store_->UnreadablePeers({Peer("s2", 0xabcdef)}), IsEmpty());
  EXPECT_THAT(other->UnreadablePeers({Peer("s1", 1)}), IsEmpty());
  EXPECT_THAT(*ListFolder(directory_ + "/.servers"),
              ElementsAre("s1-0000000000000001", "s2-0000000000abcdef"));
}

TEST_F(MarkersTest, APeerWithADirectoryOfItsOwnIsNamed) {
  FileStoreOptions elsewhere = Options("s2", 2);
  elsewhere.directory = folder_ / "elsewhere";
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto other, OpenFileStore(elsewhere));
  EXPECT_THAT(
      store_->UnreadablePeers({Peer("s1", 1), Peer("s2", 2)}),
      ElementsAre(AllOf(HasSubstr("server 's2'"),
                        HasSubstr(directory_ + "/.servers/s2-0000000000000002"),
                        HasSubstr("cannot be opened"))));
}

TEST_F(MarkersTest, TheMarkerOfAnEarlierProcessDoesNotCount) {
  Open("s2", 2);
  EXPECT_EQ(store_->UnreadablePeers({Peer("s2", 3)}).size(), 1u);
}

TEST_F(MarkersTest, AMarkerWithOtherWordsIsNamed) {
  Open("s2", 2);
  WriteBytes(directory_ + "/.servers/s2-0000000000000002", "?");
  EXPECT_THAT(store_->UnreadablePeers({Peer("s2", 2)}),
              ElementsAre(HasSubstr("does not say what it should")));
}

TEST_F(MarkersTest, ARestartReplacesOnlyItsOwnMarker) {
  Open("s1-x", 7);
  Open("s1", 9);
  EXPECT_THAT(*ListFolder(directory_ + "/.servers"),
              ElementsAre("s1-0000000000000009", "s1-x-0000000000000007"));
}

TEST_F(MarkersTest, HostileServerNamesStayInTheirFolder) {
  Open("../../s", 5);
  EXPECT_THAT(
      *ListFolder(directory_ + "/.servers"),
      ElementsAre("%2E.%2F..%2Fs-0000000000000005", "s1-0000000000000001"));
  EXPECT_THAT(store_->UnreadablePeers({Peer("../../s", 5)}), IsEmpty());
}

TEST_F(MarkersTest, OpeningSaysWhatIsWrong) {
  FileStoreOptions options = Options("s1", 1);
  options.directory = folder_ / "none/checkpoints";
  EXPECT_THAT(OpenFileStore(options),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("none' is not a folder; make it first")));
  options = Options("", 1);
  EXPECT_THAT(OpenFileStore(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
  options = Options("s1", 0);
  EXPECT_THAT(
      OpenFileStore(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("incarnation 0")));
  options = Options("s1", 1);
  options.keep = 0;
  EXPECT_THAT(
      OpenFileStore(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("keep 0")));
  calls_.create_error = EACCES;
  EXPECT_THAT(OpenFileStore(Options("s1", 1)),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr(directory_ + "/.servers/s1-")));
  calls_.create_error = 0;
  calls_.room = 0;
  EXPECT_THAT(OpenFileStore(Options("s1", 1)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("s1-")));
}

TEST_F(MarkersTest, ADirectoryWithASlashAtTheEndIsTheSame) {
  FileStoreOptions options = Options("s2", 2);
  options.directory += "/";
  KRONSERVE_ASSERT_OK_AND_ASSIGN(const auto other, OpenFileStore(options));
  EXPECT_THAT(store_->UnreadablePeers({Peer("s2", 2)}), IsEmpty());
}

}  // namespace
}  // namespace kronserve::checkpoint
