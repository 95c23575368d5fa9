// Short ways to write the messages that client tests are made of.

#ifndef KRONSERVE_CLIENT_TESTING_MESSAGES_H_
#define KRONSERVE_CLIENT_TESTING_MESSAGES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/transport.h"
#include "common/checksum.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/preconditioner.pb.h"
#include "proto/tensor_chunks.h"

namespace kronserve::client::testing {

struct Owner {
  std::string server;
  int64_t from_step = 0;
  std::string source = "";
};

// An assignment of job "job": one owner per layer; server "a" has address
// "a:1".
inline v1::Assignment MakeAssignment(uint64_t epoch, uint64_t term,
                                     const std::vector<Owner>& owners) {
  v1::Assignment assignment;
  assignment.set_job("job");
  assignment.set_epoch(epoch);
  assignment.set_term(term);
  for (const Owner& owner : owners) {
    v1::LayerOwner* added = assignment.add_owners();
    added->set_layer(assignment.owners_size() - 1);
    added->set_server(owner.server);
    added->set_from_step(owner.from_step);
    added->set_source(owner.source);
    for (const std::string& name : {owner.server, owner.source}) {
      if (name.empty()) continue;
      v1::ServerAddress* server = assignment.add_servers();
      server->set_name(name);
      server->set_address(name + ":1");
    }
  }
  return assignment;
}

inline Tensor MakeTensor(std::vector<float> values) {
  return std::make_shared<const std::vector<float>>(std::move(values));
}

// What a server that preconditions well says of item `item`: V = `values`.
inline LayerAnswer MakeAnswer(int item, int layer, std::vector<float> values) {
  LayerAnswer answer;
  answer.reply.set_item(item);
  answer.reply.set_layer(layer);
  answer.reply.set_outcome(v1::LAYER_OUTCOME_PRECONDITIONED);
  answer.reply.set_version(1);
  answer.reply.set_age(0);
  answer.reply.set_rung(v1::REFRESH_RUNG_DIRECT);
  answer.reply.set_damping(0.03);
  answer.reply.set_checksum(
      Checksum(values.data(), values.size() * sizeof(float)));
  answer.values = MakeTensor(std::move(values));
  return answer;
}

}  // namespace kronserve::client::testing

#endif  // KRONSERVE_CLIENT_TESTING_MESSAGES_H_
