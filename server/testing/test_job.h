// Small jobs for the tests of this folder.

#ifndef KRONSERVE_SERVER_TESTING_TEST_JOB_H_
#define KRONSERVE_SERVER_TESTING_TEST_JOB_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "linalg/packed_triangle.h"
#include "proto/tensor_chunks.h"
#include "proto/testing/sample_job.h"

namespace kronserve::server::testing {

inline constexpr char kServerName[] = "s0";

// Synchronous, every step a factor step and a refresh.
inline v1::JobOptions SyncOptions() {
  v1::JobOptions options = ::kronserve::testing::SampleOptions();
  options.set_inv_update_steps(1);
  options.set_refresh_schedule(v1::REFRESH_SCHEDULE_ALIGNED);
  options.set_max_staleness(0);
  options.set_round_policy(v1::ROUND_POLICY_WAIT);
  options.set_step_budget_ms(60000);
  return options;
}

// Answers may be `max_staleness` steps late; rounds may be merged in part.
inline v1::JobOptions AsyncOptions(int64_t max_staleness) {
  v1::JobOptions options = SyncOptions();
  options.set_max_staleness(max_staleness);
  options.set_round_policy(v1::ROUND_POLICY_PARTIAL);
  options.set_step_budget_ms(2000);
  return options;
}

inline uint64_t IncarnationOf(int rank) { return 1000 + rank; }

// Every rank is a node of its own; "s0" owns all layers from step 0.
inline v1::ConfigureJobRequest MakeJob(const std::vector<v1::LayerSpec>& layers,
                                       int num_ranks,
                                       const v1::JobOptions& options) {
  v1::ConfigureJobRequest request;
  request.set_term(1);
  v1::JobConfig* config = request.mutable_config();
  config->set_job("job");
  *config->mutable_options() = options;
  config->mutable_world()->set_version(1);
  config->mutable_world()->set_run_id("run");
  for (int rank = 0; rank < num_ranks; ++rank) {
    v1::RankInfo* info = config->mutable_world()->add_ranks();
    info->set_rank(rank);
    info->set_node(absl::StrCat("node", rank));
    info->set_incarnation(IncarnationOf(rank));
  }
  v1::Assignment* assignment = config->mutable_assignment();
  assignment->set_job("job");
  assignment->set_epoch(1);
  assignment->set_term(1);
  for (const v1::LayerSpec& layer : layers) {
    v1::LayerOwner* owner = assignment->add_owners();
    owner->set_layer(config->layers_size());
    owner->set_server(kServerName);
    *config->add_layers() = layer;
  }
  return request;
}

// Of the servers "s0", "s1", ... of the tests.
inline uint64_t IncarnationOfServer(const std::string& name) {
  return 70 + static_cast<uint64_t>(name.back() - '0');
}

// The next assignment: `layer` goes to `server` from `from_step` on, handed
// over by `source` (empty: by nobody).
inline void Place(v1::ConfigureJobRequest* request, int layer,
                  const std::string& server, int64_t from_step,
                  const std::string& source = "") {
  v1::Assignment* assignment = request->mutable_config()->mutable_assignment();
  assignment->set_epoch(assignment->epoch() + 1);
  v1::LayerOwner* owner = assignment->mutable_owners(layer);
  owner->set_server(server);
  owner->set_from_step(from_step);
  owner->set_source(source);
  assignment->clear_servers();
  for (const char* name : {"s0", "s1", "s2"}) {
    v1::ServerAddress* address = assignment->add_servers();
    address->set_name(name);
    address->set_address(absl::StrCat(name, ":1"));
    address->set_incarnation(IncarnationOfServer(name));
  }
}

inline v1::CallHeader MakeCall(int rank, int64_t step) {
  v1::CallHeader call;
  call.set_job("job");
  call.set_world_version(1);
  call.set_epoch(1);
  call.set_step(step);
  call.set_rank(rank);
  call.set_incarnation(IncarnationOf(rank));
  return call;
}

inline Tensor MakeTensor(std::vector<float> values) {
  return std::make_shared<const std::vector<float>>(std::move(values));
}

// Packed upper triangle of value * I.
inline Tensor PackedIdentity(int64_t d, float value) {
  std::vector<float> packed(linalg::PackedSize(d));
  for (int64_t i = 0; i < d; ++i) packed[linalg::PackedIndex(d, i, i)] = value;
  return MakeTensor(std::move(packed));
}

inline uint64_t ChecksumOf(const Tensor& tensor) {
  return Checksum(tensor->data(), tensor->size() * sizeof(float));
}

// An item with data, and what it sends.
struct Piece {
  v1::ContributionItem item;
  Tensor tensor;
};

inline Piece MakePiece(int layer, v1::FactorKind kind, int64_t d, Tensor tensor,
                       int64_t rows) {
  Piece piece;
  piece.item.set_layer(layer);
  piece.item.set_kind(kind);
  piece.item.set_body(v1::CONTRIBUTION_BODY_DATA);
  piece.item.set_dim(d);
  piece.item.set_loss_rows(rows);
  piece.item.set_rows(rows);
  piece.item.set_checksum(ChecksumOf(tensor));
  piece.tensor = std::move(tensor);
  return piece;
}

inline Piece MakeEmptyPiece(int layer, v1::FactorKind kind) {
  Piece piece;
  piece.item.set_layer(layer);
  piece.item.set_kind(kind);
  piece.item.set_body(v1::CONTRIBUTION_BODY_EMPTY_UNUSED);
  return piece;
}

// A = a I from `rows` rows and G = g I from as many, as raw sums.
inline std::vector<Piece> MakeFactors(int layer, const v1::LayerSpec& spec,
                                      float a, float g, int64_t rows) {
  const auto n = static_cast<float>(rows);
  return {MakePiece(layer, v1::FACTOR_KIND_INPUT, spec.d_in(),
                    PackedIdentity(spec.d_in(), a * n), rows),
          MakePiece(layer, v1::FACTOR_KIND_OUTPUT, spec.d_out(),
                    PackedIdentity(spec.d_out(), g * n), rows)};
}

inline v1::PushFactorsHeader MakePushHeader(int rank, int64_t step,
                                            const std::vector<Piece>& pieces) {
  v1::PushFactorsHeader header;
  *header.mutable_call() = MakeCall(rank, step);
  header.set_damping(0);
  header.set_factor_decay(0.5);
  for (const Piece& piece : pieces) *header.add_items() = piece.item;
  return header;
}

}  // namespace kronserve::server::testing

#endif  // KRONSERVE_SERVER_TESTING_TEST_JOB_H_
