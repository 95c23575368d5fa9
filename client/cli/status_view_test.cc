#include "client/cli/status_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/cli/table.h"

namespace kronserve::client {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void AddLayer(v1::JobStatus* job, const std::string& name,
              const std::string& owner, int64_t from_step) {
  v1::LayerSpec* layer = job->add_layers();
  layer->set_name(name);
  layer->set_d_out(128);
  layer->set_d_in(785);
  v1::LayerOwner* assigned = job->mutable_assignment()->add_owners();
  assigned->set_layer(job->layers_size() - 1);
  assigned->set_server(owner);
  assigned->set_from_step(from_step);
  job->add_refresh_seconds(0.00225);
}

v1::GetStatusResponse Cluster() {
  v1::GetStatusResponse status;
  status.set_term(3);
  status.set_incarnation(18446744073709551615u);
  status.set_store("sqlite:/var/lib/state.db");
  v1::ServerStatus* alive = status.add_servers();
  alive->set_name("s1");
  alive->set_address("10.0.0.1:7001");
  alive->set_state(v1::MEMBER_STATE_ALIVE);
  alive->set_heartbeat_age_seconds(0.25);
  alive->set_memory_bytes(int64_t{2} << 30);
  alive->mutable_load()->set_predicted_bytes(3 << 20);
  alive->mutable_load()->set_refresh_queue_depth(5);
  alive->set_predicted_refresh_seconds(0.00225);
  v1::ServerStatus* dead = status.add_servers();
  dead->set_name("s2");
  dead->set_state(v1::MEMBER_STATE_DEAD);
  v1::JobStatus* job = status.add_jobs();
  job->set_job("mnist");
  job->set_state(v1::JOB_STATE_RUNNING);
  job->set_step(41);
  job->set_imbalance(1.25);
  job->mutable_assignment()->set_epoch(2);
  job->mutable_world()->set_version(7);
  job->mutable_world()->set_run_id("run");
  v1::RankInfo* rank = job->mutable_world()->add_ranks();
  rank->set_node("node0");
  rank->set_incarnation(9);
  AddLayer(job, "fc1", "s1", 0);
  AddLayer(job, "fc2", "", 43);
  return status;
}

TEST(RenderTextTest, ShowsServersJobsAndOwners) {
  const std::string text =
      RenderText(Cluster(), "127.0.0.1:7710", /*colors=*/false);
  EXPECT_THAT(text, HasSubstr("Scheduler 127.0.0.1:7710, term 3, state in "
                              "sqlite:/var/lib/state.db"));
  // One line each, cells in columns.
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "s1 +alive +10.0.0.1:7001 +0.2 s +1 +3.0 MiB +2.0 GiB "
                        "+5 +0.0 s +2.25 ms\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("s2 +dead "));
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "mnist +running +1 +7 +41 +2 +2 +1.25 +run .restart "
                        "0.\n"));
  EXPECT_THAT(text, HasSubstr("Layers of job 'mnist'"));
  EXPECT_THAT(text,
              ::testing::ContainsRegex("fc1 +.128, 785. +s1 +0 +2.25 ms\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("fc2 +.128, 785. +none +43 "));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
}

TEST(RenderTextTest, ColoursOnlyWhereAsked) {
  const std::string text = RenderText(Cluster(), "x:1", /*colors=*/true);
  EXPECT_THAT(text, AllOf(HasSubstr("\033[32malive\033[0m"),
                          HasSubstr("\033[31mdead\033[0m"),
                          HasSubstr("\033[31mnone\033[0m")));
}

TEST(RenderTextTest, AnEmptyClusterSaysWhatToDo) {
  const std::string text = RenderText(v1::GetStatusResponse(), "x:1", false);
  EXPECT_THAT(text, AllOf(HasSubstr("No server has registered"),
                          HasSubstr("kronserve-server --name"),
                          HasSubstr("No job has registered")));
}

TEST(RenderTextTest, AJobWithoutAStepOrOwnersYet) {
  v1::GetStatusResponse status;
  v1::JobStatus* job = status.add_jobs();
  job->set_job("new");
  job->set_state(v1::JOB_STATE_JOINING);
  job->set_step(-1);
  job->add_layers()->set_name("fc");
  const std::string text = RenderText(status, "x:1", false);
  EXPECT_THAT(text, ::testing::ContainsRegex("new +joining +0 +0 +- "));
  EXPECT_THAT(text, ::testing::ContainsRegex("fc +.0, 0. +none "));
}

// A cluster in which a server drains, another has no shared checkpoints, and
// layers were lost, restored and are on the move.
v1::GetStatusResponse TroubledCluster() {
  v1::GetStatusResponse status = Cluster();
  status.mutable_servers(0)->set_draining(true);
  status.mutable_servers(1)->set_state(v1::MEMBER_STATE_ALIVE);
  status.mutable_servers(1)->set_state_recovery(v1::STATE_RECOVERY_NONE);
  status.mutable_servers(1)->set_state_recovery_message("cannot read s1");
  v1::JobStatus* job = status.mutable_jobs(0);
  v1::LayerRecovery* lost = job->add_recoveries();
  lost->set_layer(0);
  lost->set_source(v1::RECOVERY_SOURCE_FACTORS);
  lost->set_restored_through(-1);
  lost->set_from_step(20);
  lost->set_message("no file");
  v1::LayerRecovery* restored = job->add_recoveries();
  restored->set_layer(1);
  restored->set_source(v1::RECOVERY_SOURCE_BACKGROUND_CHECKPOINT);
  restored->set_restored_through(17);
  restored->set_from_step(21);
  job->add_moving(1);
  job->set_placement_note("one layer is larger than the rest");
  job->set_checkpoint("before-lr-drop");
  job->set_checkpoint_step(10);
  return status;
}

TEST(RenderTextTest, SaysWhatIsNotAsItShouldBe) {
  const std::string text = RenderText(TroubledCluster(), "x:1", false);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("draining"),
            HasSubstr("Server 's2': state recovery: none (cannot read s1)\n"),
            HasSubstr("Layer 'fc1' began at step 20 without its state: "
                      "factors of steps 0 to 19 are lost (no file)\n"),
            HasSubstr("Layer 'fc2' began at step 21 from a background "
                      "checkpoint of step 17: factors of steps 18 to 20 are "
                      "lost\n"),
            HasSubstr("Moving: 1 layers: fc2\n"),
            HasSubstr("larger than the rest"),
            HasSubstr("'before-lr-drop' of step 10")));
  EXPECT_THAT(RenderText(Cluster(), "x:1", false),
              AllOf(Not(HasSubstr("recovery")), Not(HasSubstr("Moving"))));
}

TEST(RenderTextTest, SharedCheckpointsAreSaidOnce) {
  v1::GetStatusResponse status = Cluster();
  status.mutable_servers(0)->set_state_recovery(v1::STATE_RECOVERY_SHARED);
  // What a dead server said last counts no more.
  status.mutable_servers(1)->set_state_recovery(v1::STATE_RECOVERY_NONE);
  EXPECT_THAT(
      RenderText(status, "x:1", false),
      AllOf(HasSubstr("State recovery: shared\n"), Not(HasSubstr("none ("))));
}

TEST(RenderTextTest, ACheckpointOfTheStepBeforeLosesNothing) {
  v1::GetStatusResponse status = TroubledCluster();
  status.mutable_jobs(0)->mutable_recoveries(1)->set_restored_through(20);
  EXPECT_THAT(RenderText(status, "x:1", false),
              HasSubstr("checkpoint of step 20: nothing is lost\n"));
}

TEST(RenderJsonTest, SaysWhatIsNotAsItShouldBe) {
  const json document = json::parse(RenderJson(TroubledCluster(), "x:1"));
  EXPECT_EQ(document["servers"][0]["draining"], true);
  EXPECT_EQ(document["servers"][0]["state_recovery"], "unknown");
  EXPECT_EQ(document["servers"][1]["state_recovery"], "none");
  const json& job = document["jobs"][0];
  EXPECT_EQ(job["recoveries"][0]["source"], "factors");
  EXPECT_EQ(job["recoveries"][0]["restored_through"], -1);
  EXPECT_EQ(job["recoveries"][1]["source"], "background_checkpoint");
  EXPECT_EQ(job["recoveries"][1]["layer"], 1);
  EXPECT_EQ(job["moving"], 1);
  EXPECT_EQ(job["checkpoint"], "before-lr-drop");
  EXPECT_EQ(job["checkpoint_step"], 10);
}

TEST(RenderTextTest, ANameCannotSteerTheTerminal) {
  v1::GetStatusResponse status;
  status.add_servers()->set_name("evil\033[2J\nx");
  const std::string text = RenderText(status, "x:1", false);
  EXPECT_THAT(text, AllOf(HasSubstr("evil?[2J?x"), Not(HasSubstr("\033"))));
}

TEST(RenderJsonTest, HasTheSameContent) {
  const json document = json::parse(RenderJson(Cluster(), "127.0.0.1:7710"));
  EXPECT_EQ(document["scheduler"]["address"], "127.0.0.1:7710");
  EXPECT_EQ(document["scheduler"]["term"], 3);
  EXPECT_EQ(document["scheduler"]["incarnation"], "18446744073709551615");
  ASSERT_EQ(document["servers"].size(), 2u);
  EXPECT_EQ(document["servers"][0]["state"], "alive");
  EXPECT_EQ(document["servers"][0]["layers"], 1);
  EXPECT_EQ(document["servers"][0]["memory_bytes"], int64_t{2} << 30);
  EXPECT_EQ(document["servers"][1]["state"], "dead");
  const json& job = document["jobs"][0];
  EXPECT_EQ(job["name"], "mnist");
  EXPECT_EQ(job["state"], "running");
  EXPECT_EQ(job["step"], 41);
  EXPECT_EQ(job["epoch"], 2);
  EXPECT_EQ(job["world_version"], 7);
  EXPECT_EQ(job["ranks"][0]["node"], "node0");
  EXPECT_EQ(job["layers"][0]["owner"], "s1");
  EXPECT_EQ(job["layers"][1]["owner"], "");
  EXPECT_EQ(job["layers"][1]["from_step"], 43);
  EXPECT_EQ(job["layers"][0]["d_in"], 785);
  EXPECT_DOUBLE_EQ(job["layers"][0]["predicted_refresh_seconds"], 0.00225);
}

TEST(RenderJsonTest, AnEmptyClusterHasEmptyLists) {
  const json document = json::parse(RenderJson(v1::GetStatusResponse(), "x:1"));
  EXPECT_TRUE(document["servers"].is_array());
  EXPECT_TRUE(document["servers"].empty());
  EXPECT_TRUE(document["jobs"].empty());
}

TEST(FormatTableTest, AlignsNumbersToTheRight) {
  EXPECT_EQ(FormatTable({{"NAME", "N"}, {"a", "7"}, {"long", "1234"}}, false),
            "NAME  N\n"
            "a        7\n"
            "long  1234\n");
}

}  // namespace
}  // namespace kronserve::client
