// Gradients against finite differences in double, and what a pass leaves
// behind.

#include "worker/training/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "linalg/backend.h"
#include "worker/training/loss.h"
#include "worker/training/random.h"

namespace kronserve::worker {
namespace {

using linalg::Matrix;

template <typename T>
linalg::DenseKernels<T>* Kernels() {
  static auto* const tools = new linalg::LinearAlgebra<T>(
      *linalg::CreateLinearAlgebra<T>(linalg::Device::kCpu));
  return tools->kernels.get();
}

struct Batch {
  Matrix<double> inputs;
  std::vector<uint8_t> labels;
};

Batch RandomBatch(int64_t rows, int64_t size, int64_t classes) {
  RandomStream random(17, 0);
  Batch batch{Matrix<double>(rows, size), {}};
  for (double& x : batch.inputs.values) x = random.Normal();
  for (int64_t i = 0; i < rows; ++i) {
    batch.labels.push_back(random.Below(classes));
  }
  return batch;
}

double LossOf(Model<double>* model, const Batch& batch) {
  return SoftmaxCrossEntropy<double>(model->Forward(batch.inputs.view()),
                                     batch.labels.data(), {});
}

// Central differences of step h have an error of order h^2 = 1e-10 from the
// third derivative and eps / h = 2e-11 from rounding; both times values of
// order 1. No input is within h of a kink (ReLU, max) with this seed.
void ExpectGradientsMatchDifferences(Model<double>* model, const Batch& batch) {
  constexpr double kStep = 1e-5;
  constexpr double kTolerance = 1e-8;
  LossOf(model, batch);
  model->Backward(batch.labels.data());
  for (Weights<double>* weights : model->weights()) {
    const Matrix<double> gradient = weights->gradient;
    ASSERT_EQ(gradient.size(), weights->shape.gradient_size());
    for (int64_t i = 0; i < gradient.size(); ++i) {
      double& value = weights->values.values[i];
      const double kept = value;
      value = kept + kStep;
      const double above = LossOf(model, batch);
      value = kept - kStep;
      const double below = LossOf(model, batch);
      value = kept;
      ASSERT_NEAR(gradient.values[i], (above - below) / (2 * kStep), kTolerance)
          << weights->shape.name << " element " << i;
    }
  }
}

// sum g [a; 1]^T over the rows must be the gradient.
void ExpectCapturesGiveTheGradient(const Weights<double>& weights) {
  const int64_t columns = weights.shape.d_in - 1;
  ASSERT_EQ(weights.inputs.cols, columns);
  const auto sum_over_rows = [&](int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t row = 0; row < weights.inputs.rows; ++row) {
      const double a = j == columns ? 1 : weights.inputs(row, j);
      sum += weights.hook_gradients(row, i) * a;
    }
    return sum;
  };
  for (int64_t i = 0; i < weights.shape.d_out; ++i) {
    for (int64_t j = 0; j <= columns; ++j) {
      ASSERT_NEAR(weights.gradient(i, j), sum_over_rows(i, j), 1e-13);
    }
  }
}

TEST(MlpTest, ReluGradientsMatchFiniteDifferences) {
  auto model =
      CreateMlp(Kernels<double>(), {5, 7, 6, 4}, ActivationKind::kRelu, 3);
  ExpectGradientsMatchDifferences(&model, RandomBatch(9, 5, 4));
}

TEST(MlpTest, TanhGradientsMatchFiniteDifferences) {
  auto model =
      CreateMlp(Kernels<double>(), {5, 7, 6, 4}, ActivationKind::kTanh, 3);
  ExpectGradientsMatchDifferences(&model, RandomBatch(9, 5, 4));
}

TEST(ConvnetTest, GradientsMatchFiniteDifferences) {
  ConvnetShape shape;
  shape.channels = 2;
  shape.height = 7;  // Odd: the pools leave a row and a column out.
  shape.width = 9;
  shape.conv1 = 3;
  shape.conv2 = 4;
  shape.classes = 5;
  auto model = CreateConvnet(Kernels<double>(), shape, 5);
  ExpectGradientsMatchDifferences(&model, RandomBatch(4, 126, 5));
}

TEST(ModelTest, CapturesAreTheFactorsOfTheGradient) {
  auto model =
      CreateMlp(Kernels<double>(), {5, 7, 4}, ActivationKind::kTanh, 3);
  const Batch batch = RandomBatch(9, 5, 4);
  LossOf(&model, batch);
  model.Backward(batch.labels.data());
  ASSERT_EQ(model.weights().size(), 2u);
  for (const auto* weights : model.weights()) {
    ExpectCapturesGiveTheGradient(*weights);
  }
  EXPECT_EQ(model.weights()[0]->inputs.data, batch.inputs.values.data());
}

TEST(ModelTest, ConvolutionCapturesImagesAndOutputGradients) {
  ConvnetShape shape;
  shape.height = 8;
  shape.width = 8;
  auto model = CreateConvnet(Kernels<double>(), shape, 5);
  const Batch batch = RandomBatch(3, 64, 10);
  LossOf(&model, batch);
  model.Backward(batch.labels.data());
  const Weights<double>& conv2 = *model.weights()[1];
  EXPECT_EQ(conv2.shape.name, "conv2");
  EXPECT_EQ(conv2.shape.d_in, 8 * 9 + 1);
  ASSERT_TRUE(conv2.geometry.has_value());
  EXPECT_EQ(conv2.geometry->in_height, 4);
  EXPECT_EQ(conv2.inputs.rows, 3);
  EXPECT_EQ(conv2.inputs.cols, 8 * 4 * 4);
  EXPECT_EQ(conv2.hook_gradients.cols, 16 * 4 * 4);
  EXPECT_FALSE(model.weights()[2]->geometry.has_value());
}

// A 3 x 3 convolution with one tap set moves the image.
TEST(ConvolutionTest, OneTapShiftsTheImage) {
  curvature::ConvGeometry geometry;
  geometry.in_channels = 1;
  geometry.in_height = 2;
  geometry.in_width = 3;
  geometry.kernel_height = geometry.kernel_width = 3;
  geometry.padding = 1;
  const auto layer = CreateConvolution(Kernels<double>(), "c", geometry, 1);
  layer->weights()->values(0, 3) = 2;   // Row 1, column 0: the left neighbour.
  layer->weights()->values(0, 9) = 10;  // Bias.
  const double image[] = {1, 2, 3, 4, 5, 6};
  const auto out = layer->Forward({image, 1, 6});
  EXPECT_THAT(std::vector<double>(out.data, out.data + 6),
              ::testing::ElementsAre(10, 12, 14, 10, 18, 20));
}

TEST(ModelTest, RowsOfABatchDoNotInfluenceOneAnother) {
  auto model = CreateMlp(Kernels<float>(), {3, 8, 2}, ActivationKind::kRelu, 1);
  const float rows[] = {1, 2, 3, -1, 0.5, 2};
  const auto both = model.Forward({rows, 2, 3});
  const float second[] = {both(1, 0), both(1, 1)};
  const auto alone = model.Forward({rows + 3, 1, 3});
  EXPECT_FLOAT_EQ(alone(0, 0), second[0]);
  EXPECT_FLOAT_EQ(alone(0, 1), second[1]);
}

TEST(ModelTest, SeedsFixTheWeightsForEveryType) {
  auto one =
      CreateMlp(Kernels<double>(), {400, 300, 10}, ActivationKind::kRelu, 1);
  auto same =
      CreateMlp(Kernels<float>(), {400, 300, 10}, ActivationKind::kRelu, 1);
  auto other =
      CreateMlp(Kernels<double>(), {400, 300, 10}, ActivationKind::kRelu, 2);
  const Weights<double>& fc1 = *one.weights()[0];
  EXPECT_EQ(float(fc1.values(2, 3)), same.weights()[0]->values(2, 3));
  EXPECT_NE(fc1.values(2, 3), other.weights()[0]->values(2, 3));
  double squares = 0;
  for (int64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(fc1.values(i, 400), 0);  // Bias.
    for (int64_t j = 0; j < 400; ++j) {
      squares += fc1.values(i, j) * fc1.values(i, j);
    }
  }
  // He: variance 2 / 400; the estimate's deviation is sqrt(2 / 120,000).
  EXPECT_NEAR(squares / (300 * 400) * 200, 1, 5 * std::sqrt(2.0 / 120'000));
}

TEST(ModelTest, ShapesNameTheLayers) {
  const auto model =
      CreateMlp(Kernels<float>(), {784, 256, 10}, ActivationKind::kRelu, 1);
  const auto shapes = model.shapes();
  ASSERT_EQ(shapes.size(), 2u);
  EXPECT_EQ(shapes[0].name, "fc1");
  EXPECT_EQ(shapes[0].d_out, 256);
  EXPECT_EQ(shapes[0].d_in, 785);
  EXPECT_TRUE(shapes[0].has_bias);
  EXPECT_EQ(shapes[1].name, "fc2");
  EXPECT_EQ(model.parameters()[1].rows, 10);
  EXPECT_EQ(model.parameters()[1].cols, 257);
}

}  // namespace
}  // namespace kronserve::worker
