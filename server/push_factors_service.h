// One PushFactors call.
//
// Layer: server. May include curvature/, placement/, linalg/, proto/, common/.

#ifndef KRONSERVE_SERVER_PUSH_FACTORS_SERVICE_H_
#define KRONSERVE_SERVER_PUSH_FACTORS_SERVICE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "server/upload_service.h"

namespace kronserve::server {

// Contributions of one rank, which are staged; see upload_service.h.
struct PushUpload {
  using Request = v1::PushFactorsRequest;
  using Header = v1::PushFactorsHeader;
  using Ticket = PushTicket;
  using Response = v1::PushFactorsResponse;

  static absl::StatusOr<Ticket> Begin(ServerRuntime* runtime,
                                      const Header& header) {
    return runtime->BeginPush(header);
  }
  static std::string Name(const Header& header, int item) {
    return absl::StrCat("item ", item, " of layer ",
                        header.items(item).layer());
  }
  static void Complete(ServerRuntime* runtime, Ticket ticket, Header header,
                       std::vector<Tensor> tensors,
                       ServerRuntime::PushDone done) {
    std::vector<ArrivedTensor> arrived;
    for (int i = 0; i < header.items_size(); ++i) {
      arrived.push_back(
          {std::move(tensors[i]), header.items(i).checksum(), {}});
    }
    runtime->StagePush(std::move(ticket), std::move(header), std::move(arrived),
                       std::move(done));
  }
  static void Abandon(ServerRuntime* runtime, const Ticket& ticket) {
    runtime->AbandonPush(ticket);
  }
};

using PushFactorsCall = UploadCall<PushUpload>;

}  // namespace kronserve::server

#endif  // KRONSERVE_SERVER_PUSH_FACTORS_SERVICE_H_
