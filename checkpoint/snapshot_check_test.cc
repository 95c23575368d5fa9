#include "checkpoint/snapshot_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/testing/sample_layer.h"
#include "common/testing/status_matchers.h"

namespace kronserve::checkpoint {
namespace {

using ::kronserve::testing::IsOk;
using ::kronserve::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status CheckChanged(
    const std::function<void(v1::LayerSnapshot*)>& change) {
  v1::LayerSnapshot meta = SampleLayer(0, 1, 5).meta;
  change(&meta);
  return CheckSnapshot(meta);
}

auto Invalid(const char* what) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
}

auto Differs(const char* what) {
  return StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(what));
}

TEST(CheckSnapshotTest, TakesAWholeState) {
  EXPECT_THAT(CheckChanged([](v1::LayerSnapshot*) {}), IsOk());
}

TEST(CheckSnapshotTest, NamesWhatIsOutOfRange) {
  EXPECT_THAT(CheckChanged([](auto* meta) { meta->clear_job(); }),
              Invalid("job: is empty"));
  EXPECT_THAT(
      CheckChanged([](auto* meta) { meta->mutable_layer()->clear_name(); }),
      Invalid("layer.name: is empty"));
  EXPECT_THAT(
      CheckChanged([](auto* meta) { meta->mutable_layer()->set_d_in(0); }),
      Invalid("layer 'fc1': [2, 0] has a side outside 1 to 2147483647"));
  EXPECT_THAT(
      CheckChanged([](auto* meta) { meta->mutable_layer()->set_d_out(-2); }),
      Invalid("[-2, 3]"));
  EXPECT_THAT(CheckChanged([](auto* meta) { meta->set_closed_through(-2); }),
              Invalid("closed_through: -2, at least -1"));
  EXPECT_THAT(CheckChanged([](auto* meta) { meta->set_world_version(-1); }),
              Invalid("world_version: -1, at least 0"));
}

TEST(CheckSnapshotTest, NamesATensorThatIsNotTheLayers) {
  EXPECT_THAT(CheckChanged([](auto* meta) {
                meta->mutable_tensors(1)->set_elements(4);
              }),
              Invalid("tensors[1] (AVERAGE_G): 4 elements, a layer [2, 3] has "
                      "3"));
  EXPECT_THAT(
      CheckChanged([](auto* meta) {
        meta->mutable_tensors(1)->set_role(v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_A);
      }),
      Invalid("tensors[1] (AVERAGE_A): is there twice"));
  EXPECT_THAT(
      CheckChanged([](auto* meta) { meta->mutable_tensors(2)->clear_role(); }),
      Invalid("tensors[2] (UNSPECIFIED): unknown role"));
}

TEST(CheckSnapshotTest, NamesAnIncompleteSet) {
  EXPECT_THAT(CheckChanged([](auto* meta) {
                meta->mutable_tensors()->DeleteSubrange(1, 1);
              }),
              Invalid("tensors: AVERAGE_G is missing"));
  EXPECT_THAT(CheckChanged([](auto* meta) {
                meta->mutable_tensors()->DeleteSubrange(0, 1);
              }),
              Invalid("tensors: AVERAGE_G does not belong here"));
  EXPECT_THAT(CheckChanged([](auto* meta) { meta->clear_published(); }),
              Invalid("tensors: FACTORIZATION_A does not belong here"));
  EXPECT_THAT(CheckChanged([](auto* meta) {
                meta->mutable_published()->set_method(v1::COMPUTE_METHOD_EIGEN);
              }),
              Invalid("tensors: EIGENVALUES_A is missing"));
}

TEST(CheckSnapshotTest, MethodEigenHasEigenvalues) {
  StoredLayer layer = SampleLayer(0, 1, 5);
  AddTensor(v1::SNAPSHOT_TENSOR_ROLE_EIGENVALUES_A, {1, 2, 3}, &layer);
  AddTensor(v1::SNAPSHOT_TENSOR_ROLE_EIGENVALUES_G, {1, 2}, &layer);
  EXPECT_THAT(CheckSnapshot(layer.meta),
              Invalid("EIGENVALUES_A does not belong here"));
  layer.meta.mutable_published()->set_method(v1::COMPUTE_METHOD_EIGEN);
  EXPECT_THAT(CheckSnapshot(layer.meta), IsOk());
}

// A layer [2, 3]: A is of side 3, G of side 2.
TEST(ExpectedTensorsTest, FollowFromShapeMethodAndWhatIsThere) {
  v1::LayerSnapshot meta = SampleLayer(0, 1, 5).meta;
  const auto elements = [&meta](bool averages) {
    std::vector<int64_t> all;
    for (const auto& tensor : ExpectedTensors(meta, averages)) {
      all.push_back(tensor.elements());
    }
    return all;
  };
  EXPECT_THAT(elements(true), ElementsAre(6, 3, 9, 4));
  EXPECT_EQ(ExpectedTensors(meta, true)[1].role(),
            v1::SNAPSHOT_TENSOR_ROLE_AVERAGE_G);
  meta.mutable_published()->set_method(v1::COMPUTE_METHOD_EIGEN);
  EXPECT_THAT(elements(false), ElementsAre(9, 4, 3, 2));
  meta.clear_published();
  EXPECT_THAT(elements(true), ElementsAre(6, 3));
  EXPECT_THAT(elements(false), ElementsAre());
}

TEST(CheckSnapshotFitsTest, StateOptionsAreAllThatHasToFit) {
  v1::LayerSnapshot meta = SampleLayer(0, 1, 5).meta;
  *meta.mutable_options() = StateOptions(SampleJob().options());
  EXPECT_THAT(CheckSnapshotFits(meta, SampleJob(), 0), IsOk());
  EXPECT_FALSE(meta.options().has_max_staleness());
  EXPECT_EQ(meta.options().step_budget_ms(), 0);
}

TEST(CheckSnapshotFitsTest, NamesTheFirstDifference) {
  const v1::LayerSnapshot meta = SampleLayer(0, 1, 5).meta;
  EXPECT_THAT(CheckSnapshotFits(meta, SampleJob(), 0), IsOk());
  EXPECT_THAT(CheckSnapshotFits(meta, SampleJob(), 1),
              Differs("layer 'fc2': name is fc1 in the checkpoint, fc2 in the "
                      "job"));
  const auto with = [&meta](const std::function<void(v1::JobConfig*)>& change) {
    v1::JobConfig config = SampleJob();
    change(&config);
    return CheckSnapshotFits(meta, config, 0);
  };
  EXPECT_THAT(with([](auto* c) { c->set_job("other"); }),
              Differs("job is mnist in the checkpoint, other in the job"));
  EXPECT_THAT(with([](auto* c) { c->mutable_layers(0)->set_d_in(30); }),
              Differs("layer 'fc1': d_in is 3 in the checkpoint, 30 in the "
                      "job"));
  EXPECT_THAT(with([](auto* c) { c->mutable_layers(0)->set_d_out(30); }),
              Differs("d_out is 2 in the checkpoint, 30"));
  EXPECT_THAT(with([](auto* c) { c->mutable_layers(0)->set_has_bias(false); }),
              Differs("has_bias is 1 in the checkpoint, 0"));
  EXPECT_THAT(with([](auto* c) {
                c->mutable_layers(0)->set_kind(v1::LAYER_KIND_CONV2D);
              }),
              Differs("kind is LAYER_KIND_LINEAR in the checkpoint, "
                      "LAYER_KIND_CONV2D"));
  EXPECT_THAT(with([](auto* c) { c->mutable_layers(0)->set_scale_a(2); }),
              Differs("scale_a is 1 in the checkpoint, 2"));
  EXPECT_THAT(with([](auto* c) { c->mutable_layers(0)->set_scale_g(0.5); }),
              Differs("scale_g is 1 in the checkpoint, 0.5"));
}

TEST(CheckSnapshotFitsTest, OptionsThatTheStateDependsOnMustBeEqual) {
  const v1::LayerSnapshot meta = SampleLayer(0, 1, 5).meta;
  const auto with =
      [&meta](const std::function<void(v1::JobOptions*)>& change) {
        v1::JobConfig config = SampleJob();
        change(config.mutable_options());
        return CheckSnapshotFits(meta, config, 0);
      };
  EXPECT_THAT(with([](auto* o) { o->set_method(v1::COMPUTE_METHOD_EIGEN); }),
              Differs("options: method is COMPUTE_METHOD_INVERSE in the "
                      "checkpoint, COMPUTE_METHOD_EIGEN in the job"));
  EXPECT_THAT(
      with([](auto* o) { o->set_damping_form(v1::DAMPING_FORM_EXACT); }),
      Differs("damping_form"));
  EXPECT_THAT(with([](auto* o) { o->set_factor_init(v1::FACTOR_INIT_FIRST); }),
              Differs("factor_init"));
  EXPECT_THAT(with([](auto* o) { o->set_factor_update_steps(2); }),
              Differs("factor_update_steps is 1 in the checkpoint, 2"));
  EXPECT_THAT(with([](auto* o) { o->set_inv_update_steps(20); }),
              Differs("inv_update_steps is 10 in the checkpoint, 20"));
  EXPECT_THAT(with([](auto* o) {
                o->set_refresh_schedule(v1::REFRESH_SCHEDULE_ALIGNED);
              }),
              Differs("refresh_schedule"));
  // What says whose data comes and how long to wait may change.
  EXPECT_THAT(with([](auto* o) {
                o->set_step_budget_ms(60000);
                o->set_factor_source(v1::FACTOR_SOURCE_ONE_RANK);
                o->set_max_staleness(0);
                o->set_fallback(v1::FALLBACK_KIND_PLAIN);
              }),
              IsOk());
}

v1::CheckpointManifest SampleManifest() {
  const v1::JobConfig job = SampleJob();
  v1::CheckpointManifest manifest;
  manifest.set_job(job.job());
  manifest.set_id("c1");
  manifest.set_step(5);
  *manifest.mutable_layers() = job.layers();
  *manifest.mutable_options() = job.options();
  for (int layer = 0; layer < 2; ++layer) {
    v1::CheckpointFile* file = manifest.add_files();
    file->set_layer(layer);
    file->set_path("file");
  }
  return manifest;
}

TEST(CheckManifestTest, NamesWhatIsWrong) {
  const auto with =
      [](const std::function<void(v1::CheckpointManifest*)>& change) {
        v1::CheckpointManifest manifest = SampleManifest();
        change(&manifest);
        return CheckManifest(manifest);
      };
  EXPECT_THAT(with([](auto*) {}), IsOk());
  EXPECT_THAT(with([](auto* m) { m->set_id("../x"); }), Invalid("'../x'"));
  EXPECT_THAT(with([](auto* m) { m->clear_job(); }), Invalid("job: is empty"));
  EXPECT_THAT(with([](auto* m) { m->set_step(-1); }),
              Invalid("step: -1, at least 0"));
  EXPECT_THAT(with([](auto* m) {
                m->clear_layers();
                m->clear_files();
              }),
              Invalid("layers: there is none"));
  EXPECT_THAT(with([](auto* m) { m->mutable_files()->RemoveLast(); }),
              Differs("files: 1 for 2 layers"));
  EXPECT_THAT(with([](auto* m) { m->mutable_files(1)->set_layer(0); }),
              Differs("files[1].layer: 0, expected 1: a layer is missing or "
                      "listed twice"));
  EXPECT_THAT(with([](auto* m) { m->mutable_files(1)->set_path("../f"); }),
              Invalid("files[1].path: leaves the checkpoint's folder"));
}

TEST(CheckManifestFitsTest, NamesTheFirstDifference) {
  EXPECT_THAT(CheckManifestFits(SampleManifest(), SampleJob()), IsOk());
  v1::JobConfig config = SampleJob();
  config.mutable_layers()->RemoveLast();
  EXPECT_THAT(CheckManifestFits(SampleManifest(), config),
              Differs("number of layers is 2 in the checkpoint, 1 in the job"));
  config = SampleJob();
  config.mutable_layers(1)->set_d_out(9);
  EXPECT_THAT(CheckManifestFits(SampleManifest(), config),
              Differs("layer 'fc2': d_out is 2 in the checkpoint, 9"));
  config = SampleJob();
  config.mutable_options()->set_inv_update_steps(1);
  EXPECT_THAT(CheckManifestFits(SampleManifest(), config),
              Differs("inv_update_steps"));
  config = SampleJob();
  config.set_job("other");
  EXPECT_THAT(CheckManifestFits(SampleManifest(), config), Differs("job is"));
}

}  // namespace
}  // namespace kronserve::checkpoint
