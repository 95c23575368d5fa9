// Refresh() and Precondition() against the worked examples, on every backend.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "curvature/clipping.h"
#include "curvature/damping.h"
#include "curvature/factor_average.h"
#include "curvature/preconditioner.h"
#include "curvature/testing/golden.h"
#include "curvature/testing/layer_tools.h"
#include "linalg/matrix_view.h"
#include "linalg/testing/backends.h"

namespace kronserve::curvature {
namespace {

using ::kronserve::linalg::Matrix;
using testing::ExpectClose;
using testing::GoldenTolerance;
using testing::Json;
using testing::LoadGolden;
using testing::Preconditioned;
using testing::ToMatrix;
using testing::ToPacked;

constexpr RefreshOptions kInverse{Method::kInverse, DampingForm::kFactored,
                                  0.03};
constexpr RefreshOptions kEigen{Method::kEigen, DampingForm::kExact, 0.03};
constexpr RefreshOptions kFactoredEigen{Method::kEigen, DampingForm::kFactored,
                                        0.03};

double Nu(double inner_product, double lr, double kl_clip) {
  LayerStep layer;
  layer.preconditioned = true;
  layer.inner_product = inner_product;
  return ClipStep({layer}, lr, kl_clip, Fallback::kMatched).nu;
}

template <typename B>
class PreconditionerGoldenTest : public ::testing::Test {
 protected:
  using T = typename B::Element;

  void Expect(double actual, const Json& expected, const std::string& what) {
    const double value = expected.get<double>();
    EXPECT_NEAR(actual, value, GoldenTolerance<T>() * value) << what;
  }

  // One method on the A, G of `expected` and `gradient`: V, <V, D> and nu.
  Preconditioned<T> ExpectMethod(const Json& expected, const Json& gradient,
                                 const RefreshOptions& options,
                                 const std::string& suffix) {
    auto result =
        tools_.Run(ToPacked<T>(expected["A"]), ToPacked<T>(expected["G"]),
                   ToMatrix<T>(gradient), options);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    EXPECT_EQ(result->factorization.rung, Rung::kDirect);
    EXPECT_EQ(result->factorization.damping, options.damping);
    ExpectClose(result->v.values,
                ToMatrix<double>(expected["V_" + suffix]).values,
                GoldenTolerance<T>(), "V_" + suffix);
    Expect(result->inner_product, expected["inner_VD_" + suffix], "<V, D>");
    Expect(Nu(result->inner_product, 0.1, 0.001), expected["nu_" + suffix],
           "nu");
    return *std::move(result);
  }

  // Every result that golden blocks of {A, G, pi, V_inverse, V_eigen, ...}
  // have.
  void ExpectBlock(const Json& expected, const Json& gradient) {
    const Preconditioned<T> inverse =
        ExpectMethod(expected, gradient, kInverse, "inverse");
    Expect(inverse.factorization.split.pi, expected["pi"], "pi");
    if (expected.contains("Ainv")) {
      ExpectInverse(inverse.factorization.a, expected["Ainv"]);
      ExpectInverse(inverse.factorization.g, expected["Ginv"]);
    }
    ExpectMethod(expected, gradient, kEigen, "eigen");
    // Factored damping in the eigenbases is the inverse method's V.
    ExpectMethod(expected, gradient, kFactoredEigen, "inverse");
  }

  // (L L^T)^-1 I, from either side.
  void ExpectInverse(const Matrix<T>& lower, const Json& expected) {
    Matrix<T> left(lower.rows, lower.rows);
    for (int64_t i = 0; i < lower.rows; ++i) left(i, i) = 1;
    Matrix<T> right = left;
    ASSERT_TRUE(tools_.working.spd->SolveLeft(lower.view(), left.view()).ok());
    ASSERT_TRUE(
        tools_.working.spd->SolveRight(lower.view(), right.view()).ok());
    for (const Matrix<T>& inverse : {left, right}) {
      ExpectClose(inverse.values, ToMatrix<double>(expected).values,
                  GoldenTolerance<T>(), "inverse");
    }
  }

  testing::LayerTools<T> tools_{B::kDevice};
};

TYPED_TEST_SUITE(PreconditionerGoldenTest, linalg::testing::Backends,
                 linalg::testing::BackendName);

TYPED_TEST(PreconditionerGoldenTest, Linear) {
  const Json expected = LoadGolden("linear_3x2")["expected"];
  this->ExpectBlock(expected, expected["D"]);
}

TYPED_TEST(PreconditionerGoldenTest, LinearEigenvalues) {
  using T = typename TypeParam::Element;
  const Json expected = LoadGolden("linear_3x2")["expected"];
  KRONSERVE_ASSERT_OK_AND_ASSIGN(
      const auto result,
      this->tools_.Run(ToPacked<T>(expected["A"]), ToPacked<T>(expected["G"]),
                       ToMatrix<T>(expected["D"]), kEigen));
  ExpectClose(result.factorization.values_a,
              expected["eigenvalues_A"].template get<std::vector<double>>(),
              GoldenTolerance<T>(), "eigenvalues of A");
  ExpectClose(result.factorization.values_g,
              expected["eigenvalues_G"].template get<std::vector<double>>(),
              GoldenTolerance<T>(), "eigenvalues of G");
}

TYPED_TEST(PreconditionerGoldenTest, KlClipCases) {
  const Json expected = LoadGolden("linear_3x2")["expected"];
  for (const Json& c : expected["kl_clip_cases"]) {
    const std::string form = c["form"];
    this->Expect(
        Nu(expected["inner_VD_" + form].get<double>(),
           c["learning_rate"].get<double>(), c["kl_clip"].get<double>()),
        c["nu"], form);
  }
}

// Averages by UpdateAverage() from the batch's A and G, twice.
TYPED_TEST(PreconditionerGoldenTest, AveragesFromTheIdentity) {
  const Json expected = LoadGolden("linear_3x2")["expected"];
  for (const Json& ema : expected["ema"]) {
    this->ExpectBlock(ema["after_1_update"], expected["D"]);
    this->ExpectBlock(ema["after_2_updates_same_batch"], expected["D"]);
  }
}

// Refreshing between two updates leaves no damping in the average.
TYPED_TEST(PreconditionerGoldenTest, NoDampingDrift) {
  using T = typename TypeParam::Element;
  const Json expected = LoadGolden("linear_3x2")["expected"];
  const Json& drift = expected["damping_drift"];
  const double decay = 1 - drift["weight_on_new"].get<double>();
  std::vector<T> average_a, average_g;
  for (int64_t k = 1; k <= 2; ++k) {
    UpdateAverage<T>({FactorInit::kIdentity, decay}, k, 4,
                     ToPacked<T>(expected["A"]), &average_a);
    UpdateAverage<T>({FactorInit::kIdentity, decay}, k, 2,
                     ToPacked<T>(expected["G"]), &average_g);
    ASSERT_TRUE(
        this->tools_
            .Run(average_a, average_g, ToMatrix<T>(expected["D"]), kInverse)
            .ok());
  }
  ExpectClose(average_a, ToPacked<double>(drift["A_after_2_updates_clean"]),
              GoldenTolerance<T>(), "A");
}

// Rank-deficient factors of one worker's two rows.
TYPED_TEST(PreconditionerGoldenTest, OwnerLocalFactors) {
  const Json expected = LoadGolden("linear_3x2")["expected"];
  for (const Json& owner : expected["dp_local"]) {
    this->ExpectBlock(owner, owner["D_global"]);
  }
}

// The scales of KFC and of the DP-KFAC code give one V.
TYPED_TEST(PreconditionerGoldenTest, Convolution) {
  const Json expected = LoadGolden("conv2d_1to2")["expected"];
  for (const char* scale : {"kfc", "dp_spd_code", "kaisa_code"}) {
    this->ExpectBlock(expected["conventions"][scale], expected["D"]);
  }
}

TYPED_TEST(PreconditionerGoldenTest, ExpandAndReduce) {
  const Json expected = LoadGolden("expand_reduce")["expected"];
  for (const char* variant :
       {"expand_A_n_G_nT", "expand_tokens_as_batch", "reduce_sum"}) {
    this->ExpectBlock(expected["variants"][variant], expected["D"]);
  }
}

// Two damping conventions, two answers.
TYPED_TEST(PreconditionerGoldenTest, DampingForms) {
  using T = typename TypeParam::Element;
  const Json golden = LoadGolden("damping_forms");
  for (const Json& c : golden["cases"]) {
    const Json& in = c["inputs"];
    const Json& expected = c["expected"];
    const auto expect = [&](Method method, DampingForm form,
                            const char* result) {
      KRONSERVE_ASSERT_OK_AND_ASSIGN(
          const auto found,
          this->tools_.Run(ToPacked<T>(in["A"]), ToPacked<T>(in["G"]),
                           ToMatrix<T>(in["D"]),
                           {method, form, in["damping"].get<double>()}));
      ExpectClose(found.v.values, ToMatrix<double>(expected[result]).values,
                  GoldenTolerance<T>(), result);
      const FactoredDamping& split = found.factorization.split;
      this->Expect(split.pi, expected["pi"], "pi");
      this->Expect(split.gamma_a, expected["damping_on_A"], "gamma_a");
      this->Expect(split.gamma_g, expected["damping_on_G"], "gamma_g");
    };
    expect(Method::kEigen, DampingForm::kExact, "V_exact");
    expect(Method::kEigen, DampingForm::kFactored, "V_factored");
    expect(Method::kInverse, DampingForm::kFactored, "V_factored");
  }
}

}  // namespace
}  // namespace kronserve::curvature
