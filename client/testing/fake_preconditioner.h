// A gRPC server that preconditions by doubling: V = 2 D.

#ifndef KRONSERVE_CLIENT_TESTING_FAKE_PRECONDITIONER_H_
#define KRONSERVE_CLIENT_TESTING_FAKE_PRECONDITIONER_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/grpc_transport.h"
#include "client/testing/messages.h"
#include "common/mutex.h"
#include "kronserve/v1/preconditioner.grpc.pb.h"
#include "proto/tensor_chunks.h"

namespace kronserve::client::testing {

// Thread safety: thread-safe; behaviour is set before the calls it is for.
class FakePreconditioner final : public v1::Preconditioner::Service {
 public:
  // Aborts every call with this assignment attached.
  void AbortWith(v1::Assignment newer) {
    newer_ = std::move(newer);
    abort_ = true;
  }
  // Sends V with a wrong checksum.
  void CorruptAnswers() { corrupt_ = true; }
  // Answers nothing before Release(), at most ten seconds.
  void Hang() {
    MutexLock lock(&mu_);
    hang_ = true;
  }
  void Release() {
    MutexLock lock(&mu_);
    hang_ = false;
    changed_.NotifyAll();
  }

  // What the last push brought.
  v1::PushFactorsHeader pushed() const {
    MutexLock lock(&mu_);
    return pushed_;
  }
  std::vector<Tensor> pushed_tensors() const {
    MutexLock lock(&mu_);
    return pushed_tensors_;
  }
  int64_t chunks() const {
    MutexLock lock(&mu_);
    return chunks_;
  }

  grpc::Status PushFactors(grpc::ServerContext* context,
                           grpc::ServerReader<v1::PushFactorsRequest>* reader,
                           v1::PushFactorsResponse* response) override {
    if (abort_) return Abort(context);
    v1::PushFactorsRequest request;
    if (!reader->Read(&request) || !request.has_header()) return NoHeader();
    const v1::PushFactorsHeader header = request.header();
    std::vector<ChunkAssembler::Slot> slots;
    for (const v1::ContributionItem& item : header.items()) {
      const bool data = item.body() == v1::CONTRIBUTION_BODY_DATA;
      slots.push_back({data ? item.dim() * (item.dim() + 1) / 2 : 0});
    }
    ChunkAssembler assembler(slots);
    if (auto status = ReadChunks(reader, &request, &assembler); !status.ok()) {
      return status;
    }
    WaitWhileHanging();
    MutexLock lock(&mu_);
    pushed_ = header;
    pushed_tensors_.clear();
    for (int i = 0; i < header.items_size(); ++i) {
      pushed_tensors_.push_back(assembler.Take(i));
      response->add_results()->set_outcome(v1::CONTRIBUTION_OUTCOME_ACCEPTED);
    }
    return grpc::Status::OK;
  }

  grpc::Status Precondition(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::PreconditionResponse,
                               v1::PreconditionRequest>* stream) override {
    if (abort_) return Abort(context);
    v1::PreconditionRequest request;
    if (!stream->Read(&request) || !request.has_header()) return NoHeader();
    const v1::PreconditionHeader header = request.header();
    std::vector<ChunkAssembler::Slot> slots;
    for (const v1::GradientItem& item : header.items()) {
      slots.push_back({item.rows() * item.cols()});
    }
    ChunkAssembler assembler(slots);
    if (auto status = ReadChunks(stream, &request, &assembler); !status.ok()) {
      return status;
    }
    WaitWhileHanging();
    for (int i = header.items_size() - 1; i >= 0; --i) {
      const Tensor gradient = assembler.Take(i);
      if (gradient == nullptr) return NoHeader();
      Answer(stream, i, header.items(i).layer(), *gradient);
    }
    return grpc::Status::OK;
  }

 private:
  static grpc::Status NoHeader() {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                        "the stream breaks its order");
  }

  grpc::Status Abort(grpc::ServerContext* context) const {
    context->AddTrailingMetadata(kAssignmentMetadata,
                                 newer_.SerializeAsString());
    v1::LayersElsewhere elsewhere;
    elsewhere.add_layers(0);
    context->AddTrailingMetadata(kElsewhereMetadata,
                                 elsewhere.SerializeAsString());
    return grpc::Status(grpc::StatusCode::ABORTED, "another owner");
  }

  template <typename Stream, typename Request>
  grpc::Status ReadChunks(Stream* stream, Request* request,
                          ChunkAssembler* assembler) {
    while (stream->Read(request)) {
      if (!request->has_chunk() || !assembler->Add(request->chunk()).ok()) {
        return NoHeader();
      }
      MutexLock lock(&mu_);
      ++chunks_;
    }
    return grpc::Status::OK;
  }

  template <typename Stream>
  void Answer(Stream* stream, int item, int layer, std::vector<float> values) {
    for (float& value : values) value *= 2;
    LayerAnswer answer = MakeAnswer(item, layer, std::move(values));
    if (corrupt_) answer.reply.set_checksum(answer.reply.checksum() + 1);
    v1::PreconditionResponse response;
    *response.mutable_reply() = answer.reply;
    stream->Write(response);
    ChunkSplitter splitter(item, answer.values->data(),
                           static_cast<int64_t>(answer.values->size()));
    while (splitter.Next(response.mutable_chunk())) stream->Write(response);
  }

  void WaitWhileHanging() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (hang_ && absl::Now() < deadline) {
      changed_.WaitFor(&mu_, deadline - absl::Now());
    }
  }

  bool abort_ = false;
  bool corrupt_ = false;
  v1::Assignment newer_;

  mutable Mutex mu_;
  CondVar changed_;
  bool hang_ ABSL_GUARDED_BY(mu_) = false;
  int64_t chunks_ ABSL_GUARDED_BY(mu_) = 0;
  v1::PushFactorsHeader pushed_ ABSL_GUARDED_BY(mu_);
  std::vector<Tensor> pushed_tensors_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kronserve::client::testing

#endif  // KRONSERVE_CLIENT_TESTING_FAKE_PRECONDITIONER_H_
