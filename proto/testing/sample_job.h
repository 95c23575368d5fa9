// A job that every check accepts, for tests to start from.
//
// Layer: proto, tests only.

#ifndef KRONSERVE_PROTO_TESTING_SAMPLE_JOB_H_
#define KRONSERVE_PROTO_TESTING_SAMPLE_JOB_H_

#include <cstdint>
#include <string>

#include "kronserve/v1/job.pb.h"

namespace kronserve::testing {

// Asynchronous, a factor step at each step, a refresh every ten.
inline v1::JobOptions SampleOptions() {
  v1::JobOptions options;
  options.set_factor_update_steps(1);
  options.set_inv_update_steps(10);
  options.set_method(v1::COMPUTE_METHOD_INVERSE);
  options.set_damping_form(v1::DAMPING_FORM_FACTORED);
  options.set_factor_init(v1::FACTOR_INIT_WARM);
  options.set_factor_source(v1::FACTOR_SOURCE_ALL);
  options.set_refresh_schedule(v1::REFRESH_SCHEDULE_STAGGERED);
  options.set_max_staleness(5);
  options.set_round_policy(v1::ROUND_POLICY_PARTIAL);
  options.set_min_round_share(0.5);
  options.set_step_budget_ms(2000);
  options.set_round_deadline_ms(1000);
  options.set_max_open_rounds(2);
  options.set_fallback(v1::FALLBACK_KIND_MATCHED);
  options.set_deterministic(false);
  return options;
}

// Without a bias column.
inline v1::LayerSpec SampleLayer(const std::string& name, int64_t d_out,
                                 int64_t d_in) {
  v1::LayerSpec layer;
  layer.set_name(name);
  layer.set_kind(v1::LAYER_KIND_LINEAR);
  layer.set_d_out(d_out);
  layer.set_d_in(d_in);
  layer.set_scale_a(1);
  layer.set_scale_g(1);
  return layer;
}

}  // namespace kronserve::testing

#endif  // KRONSERVE_PROTO_TESTING_SAMPLE_JOB_H_
