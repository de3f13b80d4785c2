// Batch normalisation of a shard by the statistics of the whole batch: four operators on float32
// whose last dimension is the channels, each of which reads its tensors once.
//
// Values are added up in blocks that stay in the first cache, in float, and blocks in double, so
// that neither the number of values nor a mean far from zero costs digits. Parts, which threads
// share, follow from the shape alone, and are combined in order: results have the same bits on any
// number of threads.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/threadpool.h"

namespace tensoropt {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

constexpr int64_t kWidth = 64;         // least values of a line
constexpr int64_t kLines = 64;         // most lines of a block
constexpr int64_t kFirst = 8;          // lines that a first shift is the mean of
constexpr int64_t kPart = 256 * 1024;  // values of a part
constexpr int64_t kParts = 64;         // at most

// A tensor as rows of channels, and as lines of several rows where channels are few: loops along
// a line fill vectors whatever the number of channels.
struct Rows {
  int64_t rows, channels, fold, width;

  explicit Rows(const Tensor& x)
      : rows(0), channels(x.dim_size(x.dims() - 1)), fold(0), width(0) {
    rows = channels == 0 ? 0 : x.NumElements() / channels;
    fold = channels == 0 ? 1 : (kWidth + channels - 1) / channels;
    width = fold * channels;
  }

  int64_t parts() const {
    return std::max<int64_t>(1, std::min({kParts, rows * channels / kPart, rows / fold}));
  }

  // Calls f(first row, end) for each block of a part: kLines lines, the last may have fewer rows.
  template <typename F>
  void Blocks(int64_t part, int64_t of, const F& f) const {
    const int64_t lines = (rows + fold - 1) / fold;
    const int64_t end = std::min(rows, lines * (part + 1) / of * fold);
    for (int64_t row = lines * part / of * fold; row < end; row += kLines * fold) {
      f(row, std::min(end, row + kLines * fold));
    }
  }

  // One value of each channel for every value of a line.
  template <typename F>
  std::vector<float> Line(const F& of_channel) const {
    std::vector<float> line(width);
    for (int64_t c = 0; c < channels; ++c) line[c] = static_cast<float>(of_channel(c));
    for (int64_t i = channels; i < width; ++i) line[i] = line[i - channels];
    return line;
  }
};

// f(0), ..., f(count - 1), on this rank's threads where it has several.
template <typename F>
void Parallel(OpKernelContext* context, int64_t count, const F& f) {
  const auto* threads = context->device()->tensorflow_cpu_worker_threads();
  if (count == 1 || threads->num_threads <= 1) {
    for (int64_t i = 0; i < count; ++i) f(i);
    return;
  }
  threads->workers->ParallelFor(count, kPart, [&f](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

// Adds to sums and products along the lines of a block: f(value of a, of b, place in the line)
// gives what is added to each. Four lines at a time, so that sums are loaded and stored for four.
template <typename F>
void AddLines(const float* a, const float* b, int64_t size, int64_t width,
              float* __restrict sums, float* __restrict products, const F& f) {
  int64_t at = 0;
  for (; at + 4 * width <= size; at += 4 * width) {
    const float *a0 = a + at, *a1 = a0 + width, *a2 = a1 + width, *a3 = a2 + width;
    const float *b0 = b + at, *b1 = b0 + width, *b2 = b1 + width, *b3 = b2 + width;
    for (int64_t i = 0; i < width; ++i) {
      const auto v0 = f(a0[i], b0[i], i), v1 = f(a1[i], b1[i], i);
      const auto v2 = f(a2[i], b2[i], i), v3 = f(a3[i], b3[i], i);
      sums[i] += (v0.first + v1.first) + (v2.first + v3.first);
      products[i] += (v0.second + v1.second) + (v2.second + v3.second);
    }
  }
  for (; at < size; at += width) {
    const int64_t count = std::min(width, size - at);
    for (int64_t i = 0; i < count; ++i) {
      const auto v = f(a[at + i], b[at + i], i);
      sums[i] += v.first;
      products[i] += v.second;
    }
  }
}

struct Pair {
  float first, second;
};

// Of the rows of a part: how many, and per channel their mean and the sum of squared differences
// from it.
struct Moments {
  double count = 0;
  std::vector<double> means, squares;

  explicit Moments(int64_t channels) : means(channels), squares(channels) {}

  // Chan, Golub and LeVeque 1979.
  void Add(int64_t c, double total, double share, double mean, double square) {
    const double apart = mean - means[c];
    means[c] += apart * share;
    squares[c] += square + apart * apart * share * (total * (1 - share));
  }
};

// Of a block, sums of x - shift and of its square tell mean and squared differences. They cost no
// more digits than the spread of the values does: the shift is the mean of the part's first rows,
// and then of all before the block.
Moments MomentsOf(const Rows& shape, const float* x, int64_t part, int64_t parts) {
  const int64_t channels = shape.channels, width = shape.width;
  Moments found(channels);
  std::vector<float> shifts(width), sums(width), squares(width);
  shape.Blocks(part, parts, [&](int64_t begin, int64_t end) {
    const float* block = x + begin * channels;
    const double count = static_cast<double>(end - begin), total = found.count + count;
    if (begin == end) return;
    if (found.count == 0) {
      const int64_t rows = std::min(end - begin, kFirst * shape.fold);
      std::vector<float> first(channels);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t c = 0; c < channels; ++c) first[c] += block[row * channels + c];
      }
      shifts = shape.Line([&](int64_t c) { return first[c] / static_cast<float>(rows); });
    } else {
      shifts = shape.Line([&](int64_t c) { return found.means[c]; });
    }
    std::fill(sums.begin(), sums.end(), 0.0f);
    std::fill(squares.begin(), squares.end(), 0.0f);
    const float* shift = shifts.data();
    AddLines(block, block, (end - begin) * channels, width, sums.data(), squares.data(),
             [shift](float v, float, int64_t i) {
               const float apart = v - shift[i];
               return Pair{apart, apart * apart};
             });
    const double share = count / total;
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0, square = 0;
      for (int64_t i = c; i < width; i += channels) {
        sum += sums[i];
        square += squares[i];
      }
      const double mean = sum / count;
      found.Add(c, total, share, shifts[c] + mean, std::max(0.0, square - sum * mean));
    }
    found.count = total;
  });
  return found;
}

// Mean and variance of a shard, [1, 2, channels]; the variance without Bessel's correction.
class StatisticsOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Rows shape(context->input(0));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {1, 2, shape.channels}, &out));
    const float* x = context->input(0).flat<float>().data();
    const int64_t parts = shape.parts();
    std::vector<Moments> of(parts, Moments(shape.channels));
    Parallel(context, parts, [&](int64_t i) { of[i] = MomentsOf(shape, x, i, parts); });
    Moments& all = of[0];
    for (int64_t i = 1; i < parts; ++i) {
      const double total = all.count + of[i].count;
      for (int64_t c = 0; c < shape.channels; ++c) {
        all.Add(c, total, of[i].count / total, of[i].means[c], of[i].squares[c]);
      }
      all.count = total;
    }
    float* to = out->flat<float>().data();
    for (int64_t c = 0; c < shape.channels; ++c) {
      to[c] = static_cast<float>(all.means[c]);
      to[shape.channels + c] = static_cast<float>(all.squares[c] / all.count);
    }
  }
};

// f(values, first value) for each stretch of whole lines of a tensor.
template <typename F>
void Stretches(OpKernelContext* context, const Rows& shape, const F& f) {
  const int64_t size = shape.rows * shape.channels;
  if (size == 0) return;
  const int64_t stretch = std::max<int64_t>(1, kPart / 4 / shape.width) * shape.width;
  Parallel(context, (size + stretch - 1) / stretch, [&](int64_t i) {
    const int64_t end = std::min(size, (i + 1) * stretch);
    for (int64_t at = i * stretch; at < end; at += shape.width) {
      f(std::min(shape.width, end - at), at);
    }
  });
}

// A shard by the mean and variance of all shards.
class NormaliseOp : public tensorflow::OpKernel {
  static void Line(int64_t count, const float* x, const float* shifts, const float* factors,
                   const float* offsets, float* __restrict y) {
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - shifts[i]) * factors[i] + offsets[i];
  }

 public:
  explicit NormaliseOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &epsilon_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const Rows shape(x);
    bool fits = true;
    for (int i = 1; i < 5; ++i) fits = fits && context->input(i).NumElements() == shape.channels;
    OP_REQUIRES(context, fits,
                absl::InvalidArgumentError("scale, offset, mean and variance are of x's channels."));
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    const float* scale = context->input(1).flat<float>().data();
    const float* offset = context->input(2).flat<float>().data();
    const float* mean = context->input(3).flat<float>().data();
    const float* variance = context->input(4).flat<float>().data();
    const auto factors = shape.Line(
        [&](int64_t c) { return scale[c] / std::sqrt(double{variance[c]} + epsilon_); });
    const auto shifts = shape.Line([&](int64_t c) { return mean[c]; });
    const auto offsets = shape.Line([&](int64_t c) { return offset[c]; });
    const float* from = x.flat<float>().data();
    float* to = y->flat<float>().data();
    Stretches(context, shape, [&](int64_t count, int64_t at) {
      Line(count, from + at, shifts.data(), factors.data(), offsets.data(), to + at);
    });
  }

 private:
  float epsilon_ = 0;
};

// Of a shard, [2, channels]: sums of dy times the normalised x, and of dy.
class SumsOp : public tensorflow::OpKernel {
 public:
  explicit SumsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &epsilon_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor &dy = context->input(0), &x = context->input(1);
    const Rows shape(x);
    const int64_t channels = shape.channels, width = shape.width, parts = shape.parts();
    OP_REQUIRES(context,
                dy.shape() == x.shape() && context->input(2).NumElements() == channels &&
                    context->input(3).NumElements() == channels,
                absl::InvalidArgumentError("dy has x's shape; mean and variance its channels."));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {2, channels}, &out));
    const float* mean = context->input(2).flat<float>().data();
    const float* variance = context->input(3).flat<float>().data();
    const float *from = dy.flat<float>().data(), *at = x.flat<float>().data();
    const auto shifts = shape.Line([&](int64_t c) { return mean[c]; });
    const float* shift = shifts.data();
    std::vector<std::vector<double>> of(parts);
    Parallel(context, parts, [&](int64_t part) {
      std::vector<double> total(2 * channels);
      std::vector<float> sums(width), products(width);
      shape.Blocks(part, parts, [&](int64_t begin, int64_t end) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        std::fill(products.begin(), products.end(), 0.0f);
        AddLines(from + begin * channels, at + begin * channels, (end - begin) * channels, width,
                 sums.data(), products.data(), [shift](float d, float v, int64_t i) {
                   return Pair{d, d * (v - shift[i])};
                 });
        for (int64_t line = 0; line < width; line += channels) {
          for (int64_t c = 0; c < channels; ++c) {
            total[c] += products[line + c];
            total[channels + c] += sums[line + c];
          }
        }
      });
      of[part] = std::move(total);
    });
    float* to = out->flat<float>().data();
    for (int64_t c = 0; c < channels; ++c) {
      double product = 0, sum = 0;
      for (const auto& total : of) {
        product += total[c];
        sum += total[channels + c];
      }
      to[c] = static_cast<float>(product / std::sqrt(double{variance[c]} + epsilon_));
      to[channels + c] = static_cast<float>(sum);
    }
  }

 private:
  float epsilon_ = 0;
};

// The gradient by x, from the sums of all shards, which have `count` values of a channel.
class GradientOp : public tensorflow::OpKernel {
  static void Line(int64_t count, const float* dy, const float* x, const float* means_dy,
                   const float* shifts, const float* slopes, const float* factors,
                   float* __restrict dx) {
    for (int64_t i = 0; i < count; ++i) {
      dx[i] = (dy[i] - means_dy[i] - (x[i] - shifts[i]) * slopes[i]) * factors[i];
    }
  }

 public:
  explicit GradientOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &epsilon_));
    OP_REQUIRES_OK(context, context->GetAttr("count", &count_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor &dy = context->input(0), &x = context->input(1);
    const Rows shape(x);
    const int64_t channels = shape.channels;
    bool fits = dy.shape() == x.shape() && context->input(5).NumElements() == 2 * channels;
    for (int i = 2; i < 5; ++i) fits = fits && context->input(i).NumElements() == channels;
    OP_REQUIRES(context, fits,
                absl::InvalidArgumentError("dy has x's shape, and the others its channels."));
    Tensor* dx = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &dx));
    const float* scale = context->input(2).flat<float>().data();
    const float* mean = context->input(3).flat<float>().data();
    const float* variance = context->input(4).flat<float>().data();
    const float* sums = context->input(5).flat<float>().data();
    const auto root = [&](int64_t c) { return 1 / std::sqrt(double{variance[c]} + epsilon_); };
    const auto factors = shape.Line([&](int64_t c) { return scale[c] * root(c); });
    const auto slopes = shape.Line([&](int64_t c) { return sums[c] / double(count_) * root(c); });
    const auto means_dy = shape.Line([&](int64_t c) { return sums[channels + c] / double(count_); });
    const auto shifts = shape.Line([&](int64_t c) { return mean[c]; });
    const float *from = dy.flat<float>().data(), *values = x.flat<float>().data();
    float* to = dx->flat<float>().data();
    Stretches(context, shape, [&](int64_t count, int64_t at) {
      Line(count, from + at, values + at, means_dy.data(), shifts.data(), slopes.data(),
           factors.data(), to + at);
    });
  }

 private:
  float epsilon_ = 0;
  int64_t count_ = 0;
};

// The number of channels: the first input's last dimension.
absl::Status Channels(InferenceContext* context, DimensionHandle* channels) {
  ShapeHandle x;
  TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(0), 1, &x));
  *channels = context->Dim(x, -1);
  return absl::OkStatus();
}

REGISTER_OP("TensorOptBatchNormStatistics")
    .Input("x: float")
    .Output("statistics: float")
    .SetShapeFn([](InferenceContext* context) {
      DimensionHandle channels;
      TF_RETURN_IF_ERROR(Channels(context, &channels));
      context->set_output(0, context->MakeShape({1, 2, channels}));
      return absl::OkStatus();
    });

REGISTER_OP("TensorOptBatchNorm")
    .Input("x: float")
    .Input("scale: float")
    .Input("offset: float")
    .Input("mean: float")
    .Input("variance: float")
    .Output("y: float")
    .Attr("epsilon: float")
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->input(0));
      return absl::OkStatus();
    });

REGISTER_OP("TensorOptBatchNormSums")
    .Input("dy: float")
    .Input("x: float")
    .Input("mean: float")
    .Input("variance: float")
    .Output("sums: float")
    .Attr("epsilon: float")
    .SetShapeFn([](InferenceContext* context) {
      DimensionHandle channels;
      TF_RETURN_IF_ERROR(Channels(context, &channels));
      context->set_output(0, context->MakeShape({2, channels}));
      return absl::OkStatus();
    });

// `sums` has those of all shards together, and `count` is of their values of a channel.
REGISTER_OP("TensorOptBatchNormGradient")
    .Input("dy: float")
    .Input("x: float")
    .Input("scale: float")
    .Input("mean: float")
    .Input("variance: float")
    .Input("sums: float")
    .Output("dx: float")
    .Attr("epsilon: float")
    .Attr("count: int >= 1")
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->input(0));
      return absl::OkStatus();
    });

using tensorflow::DEVICE_CPU;

REGISTER_KERNEL_BUILDER(Name("TensorOptBatchNormStatistics").Device(DEVICE_CPU), StatisticsOp);
REGISTER_KERNEL_BUILDER(Name("TensorOptBatchNorm").Device(DEVICE_CPU), NormaliseOp);
REGISTER_KERNEL_BUILDER(Name("TensorOptBatchNormSums").Device(DEVICE_CPU), SumsOp);
REGISTER_KERNEL_BUILDER(Name("TensorOptBatchNormGradient").Device(DEVICE_CPU), GradientOp);

}  // namespace
}  // namespace tensoropt
