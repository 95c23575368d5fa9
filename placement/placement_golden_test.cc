// Placements of the SPD-KFAC paper's models against exact integers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/testing/status_matchers.h"
#include "placement/paper_placement.h"
#include "placement/placement.h"

namespace kronserve::placement {
namespace {

using nlohmann::json;

json Golden() {
  std::ifstream file(std::string(KRONSERVE_TEST_DATA) +
                     "/golden/placement.json");
  return json::parse(file);
}

// Sides of A (with the bias) and G from the published layer tables.
std::vector<LayerDims> LayersOf(const std::string& model) {
  std::ifstream file(std::string(KRONSERVE_TEST_DATA) + "/layers/" + model +
                     ".csv");
  std::vector<LayerDims> layers;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    LayerDims layer;
    int64_t bias = 0;
    EXPECT_TRUE(absl::SimpleAtoi(cells.at(3), &layer.d_in));
    EXPECT_TRUE(absl::SimpleAtoi(cells.at(4), &layer.d_out));
    EXPECT_TRUE(absl::SimpleAtoi(cells.at(5), &bias));
    layer.d_in += bias;
    layers.push_back(layer);
  }
  return layers;
}

TEST(PaperPlacementTest, MatchesThePublishedPlacementOfResNet50) {
  const json golden = Golden();
  const json& dims = golden["models"]["resnet50"];
  std::vector<LayerDims> layers;
  for (size_t i = 0; i < dims["dims_A"].size(); ++i) {
    layers.push_back({dims["dims_A"][i], dims["dims_G"][i]});
  }
  ASSERT_EQ(layers.size(), 54u);
  for (const json& item : golden["lbp_cases"]) {
    const PaperPlacement placement =
        PlaceAsSpdKfac(layers, item["inputs"]["workers"].get<int>(),
                       item["inputs"]["threshold"].get<int64_t>());
    const json& expected = item["expected"];
    EXPECT_EQ(json(placement.rank_a), expected["rank_A"]);
    EXPECT_EQ(json(placement.rank_g), expected["rank_G"]);
    EXPECT_EQ(json(placement.loads), expected["loads"]);
    const auto nct = std::count(placement.rank_a.begin(),
                                placement.rank_a.end(), kEveryWorker) +
                     std::count(placement.rank_g.begin(),
                                placement.rank_g.end(), kEveryWorker);
    EXPECT_EQ(nct, expected["nct"].get<int>());
  }
}

// Loads are whole picoseconds below 2^53, so doubles hold them exactly.
void CheckRow(const std::vector<RefreshWork>& works, const CostCurve& curve,
              const json& row) {
  PlacementProblem problem;
  for (const RefreshWork& work : works) {
    PlacedLayer layer;
    layer.work = work;
    problem.layers.push_back(layer);
  }
  PlacementServer server;
  server.curve = curve;
  problem.servers.assign(row["servers"].get<size_t>(), server);
  KRONSERVE_ASSERT_OK_AND_ASSIGN(Placement placement,
                                 PlaceLongestFirst(problem));
  std::vector<double>& loads = placement.load_seconds;
  std::sort(loads.begin(), loads.end(), std::greater<double>());
  const std::vector<int64_t> exact(loads.begin(), loads.end());
  EXPECT_EQ(json(exact), row["loads_sorted_ps"]);
  EXPECT_EQ(exact.front(), row["makespan_ps"].get<int64_t>());
  const std::vector<CostCurve> curves(problem.servers.size(), curve);
  EXPECT_EQ(static_cast<int64_t>(std::ceil(LowerBoundSeconds(works, curves))),
            row["lower_bound_ps"].get<int64_t>());
}

TEST(PlacementGoldenTest, MatchesEveryTableToThePicosecond) {
  const json golden = Golden();
  const CostCurve curve{golden["lpt"]["cost"]["const_ps"].get<double>(),
                        golden["lpt"]["cost"]["per_d2_ps"].get<double>(), 0};
  ASSERT_EQ(golden["lpt"]["tables"].size(), 3u);
  for (const json& table : golden["lpt"]["tables"]) {
    SCOPED_TRACE(table["model"]);
    std::vector<RefreshWork> by_layer;
    std::vector<RefreshWork> by_factor;
    for (const LayerDims& layer : LayersOf(table["model"])) {
      by_layer.push_back(LayerWork(layer.d_in, layer.d_out));
      by_factor.push_back(FactorWork(layer.d_in));
      by_factor.push_back(FactorWork(layer.d_out));
    }
    ASSERT_EQ(by_factor.size(), table["factors"].get<size_t>());
    for (const json& row : table["per_factor"]) CheckRow(by_factor, curve, row);
    for (const json& row : table["per_layer"]) CheckRow(by_layer, curve, row);
  }
}

}  // namespace
}  // namespace kronserve::placement
