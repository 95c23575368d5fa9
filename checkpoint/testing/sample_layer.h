// A small job and the state of its layers, with values to be seen by eye.

#ifndef KRONSERVE_CHECKPOINT_TESTING_SAMPLE_LAYER_H_
#define KRONSERVE_CHECKPOINT_TESTING_SAMPLE_LAYER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/store.h"
#include "kronserve/v1/job.pb.h"
#include "kronserve/v1/snapshot.pb.h"
#include "proto/testing/sample_job.h"

namespace kronserve::checkpoint {

inline v1::LayerSpec SampleSpec(const std::string& name) {
  v1::LayerSpec layer = ::kronserve::testing::SampleLayer(name, 2, 3);
  layer.set_has_bias(true);
  return layer;
}

inline v1::JobOptions SampleOptions() {
  v1::JobOptions options;
  options.set_factor_update_steps(1);
  options.set_inv_update_steps(10);
  options.set_method(v1::COMPUTE_METHOD_INVERSE);
  options.set_damping_form(v1::DAMPING_FORM_FACTORED);
  options.set_factor_init(v1::FACTOR_INIT_WARM);
  options.set_factor_source(v1::FACTOR_SOURCE_ALL);
  options.set_refresh_schedule(v1::REFRESH_SCHEDULE_STAGGERED);
  options.set_max_staleness(2);
  options.set_step_budget_ms(2000);
  return options;
}

// Job "mnist", run "run-1", layers "fc1" and "fc2", both [2, 3].
inline v1::JobConfig SampleJob() {
  v1::JobConfig config;
  config.set_job("mnist");
  *config.add_layers() = SampleSpec("fc1");
  *config.add_layers() = SampleSpec("fc2");
  *config.mutable_options() = SampleOptions();
  config.mutable_world()->set_version(2);
  config.mutable_world()->set_run_id("run-1");
  return config;
}

inline void AddTensor(v1::SnapshotTensorRole role, std::vector<float> values,
                      StoredLayer* layer) {
  v1::SnapshotTensor* tensor = layer->meta.add_tensors();
  tensor->set_role(role);
  tensor->set_elements(static_cast<int64_t>(values.size()));
  layer->tensors.push_back(
      std::make_shared<const std::vector<float>>(std::move(values)));
}

// Layer `index` of SampleJob() after `step`: averages A = 1..6 and G = 7..9
// (packed), their published factors the identity.
inline StoredLayer SampleLayer(int index, uint64_t epoch, int64_t step) {
  const v1::JobConfig config = SampleJob();
  StoredLayer layer;
  v1::LayerSnapshot& meta = layer.meta;
  *meta.mutable_layer() = config.layers(index);
  *meta.mutable_options() = config.options();
  meta.set_job(config.job());
  meta.set_run_id(config.world().run_id());
  meta.set_layer_index(index);
  meta.set_world_version(config.world().version());
  meta.set_epoch(epoch);
  meta.set_closed_through(step);
  meta.set_updates(step + 1);
  meta.set_factor_step(step);
  meta.set_damping(0.003);
  meta.set_failed_for(-1);
  meta.mutable_published()->set_method(v1::COMPUTE_METHOD_INVERSE);
  meta.mutable_published()->set_damping_form(v1::DAMPING_FORM_FACTORED);
  meta.mutable_published()->set_version(step);
  AddTensor(v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_A, {1, 2, 3, 4, 5, 6}, &layer);
  AddTensor(v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_G, {7, 8, 9}, &layer);
  AddTensor(v1::SNAPSHOT_TENSOR_ROLE_FACTORIZATION_A,
            {1, 0, 0, 0, 1, 0, 0, 0, 1}, &layer);
  AddTensor(v1::SNAPSHOT_TENSOR_ROLE_FACTORIZATION_G, {1, 0, 0, 1}, &layer);
  return layer;
}

}  // namespace kronserve::checkpoint

#endif  // KRONSERVE_CHECKPOINT_TESTING_SAMPLE_LAYER_H_
