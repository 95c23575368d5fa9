#include "common/grpc_status.h"

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace kronserve {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;

TEST(GrpcStatus, EveryCodeCrossesBothWays) {
  // 1 to 16: CANCELLED to UNAUTHENTICATED, the same numbers on both sides.
  for (int code = 1; code <= 16; ++code) {
    const auto absl_code = static_cast<absl::StatusCode>(code);
    const grpc::Status sent = ToGrpcStatus(absl::Status(absl_code, "why"));
    EXPECT_EQ(sent.error_code(), static_cast<grpc::StatusCode>(code));
    EXPECT_EQ(sent.error_message(), "why");
    EXPECT_THAT(FromGrpcStatus(sent, "server 'a' at 127.0.0.1:1"),
                StatusIs(absl_code, "server 'a' at 127.0.0.1:1: why"));
  }
}

TEST(GrpcStatus, OkStaysOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_THAT(FromGrpcStatus(grpc::Status::OK, "peer"), IsOk());
}

TEST(GrpcStatus, NamesOfTheCodesAgree) {
  EXPECT_EQ(ToGrpcStatus(absl::InvalidArgumentError("")).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ToGrpcStatus(absl::AbortedError("")).error_code(),
            grpc::StatusCode::ABORTED);
  EXPECT_EQ(ToGrpcStatus(absl::ResourceExhaustedError("")).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ToGrpcStatus(absl::UnavailableError("")).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST(GrpcStatus, BrokenStreamIsUnavailable) {
  EXPECT_THAT(
      FromGrpcStatus({grpc::StatusCode::UNKNOWN, "Stream removed"}, "peer"),
      StatusIs(absl::StatusCode::kUnavailable, "peer: Stream removed"));
  EXPECT_THAT(FromGrpcStatus({grpc::StatusCode::UNKNOWN, "other"}, "peer"),
              StatusIs(absl::StatusCode::kUnknown, "peer: other"));
}

}  // namespace
}  // namespace kronserve
