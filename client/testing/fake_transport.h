// A transport that answers by functions of the test, with no network.

#ifndef KRONSERVE_CLIENT_TESTING_FAKE_TRANSPORT_H_
#define KRONSERVE_CLIENT_TESTING_FAKE_TRANSPORT_H_

#include <functional>
#include <utility>
#include <vector>

#include "client/testing/messages.h"
#include "client/transport.h"

namespace kronserve::client::testing {

// Calls the functions inside the call; the defaults are servers that take
// every contribution and answer V = D.
//
// Thread safety: as its functions.
class FakeTransport final : public Transport {
 public:
  struct Servers {
    std::function<CallEnd(const PushCall&, v1::PushFactorsResponse*)> push =
        &FakeTransport::AcceptAll;
    std::function<CallEnd(const PreconditionCall&, std::vector<LayerAnswer>*)>
        precondition = &FakeTransport::Echo;
  };

  explicit FakeTransport(Servers servers) : servers_(std::move(servers)) {}

  static CallEnd AcceptAll(const PushCall& call,
                           v1::PushFactorsResponse* response) {
    for (const v1::ContributionItem& item : call.header.items()) {
      v1::ContributionResult* result = response->add_results();
      result->set_layer(item.layer());
      result->set_kind(item.kind());
      result->set_outcome(v1::CONTRIBUTION_OUTCOME_ACCEPTED);
    }
    return {};
  }

  static CallEnd Echo(const PreconditionCall& call,
                      std::vector<LayerAnswer>* answers) {
    for (int item = 0; item < call.header.items_size(); ++item) {
      answers->push_back(MakeAnswer(item, call.header.items(item).layer(),
                                    *call.tensors[item]));
      double sum = 0;
      for (const float d : *call.tensors[item]) sum += double{d} * d;
      answers->back().reply.set_inner_product(sum);
    }
    return {};
  }

  void PushFactors(PushCall call, OnPushDone done) override {
    v1::PushFactorsResponse response;
    const CallEnd end = servers_.push(call, &response);
    done(end, response);
  }

  void Precondition(PreconditionCall call, OnLayer on_layer,
                    OnDone done) override {
    std::vector<LayerAnswer> answers;
    const CallEnd end = servers_.precondition(call, &answers);
    for (LayerAnswer& answer : answers) on_layer(std::move(answer));
    done(end);
  }

  void Shutdown() override {}

 private:
  const Servers servers_;
};

}  // namespace kronserve::client::testing

#endif  // KRONSERVE_CLIENT_TESTING_FAKE_TRANSPORT_H_
