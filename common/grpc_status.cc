#include "common/grpc_status.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace kronserve {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status,
                            const std::string& context) {
  if (status.ok()) return absl::OkStatus();
  auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kUnknown &&
      absl::StrContains(status.error_message(), "Stream removed")) {
    code = absl::StatusCode::kUnavailable;
  }
  return absl::Status(code,
                      absl::StrCat(context, ": ", status.error_message()));
}

}  // namespace kronserve
