// The operator `CollectivesMove`: one collective on a tensor, between ranks of one machine.
//
// An executor thread of TensorFlow leaves the buffers with one thread that communicates, and goes
// on; or it runs the collective itself, where that is not to overlap with computing. A chain of
// control dependencies makes the order of collectives the same on every rank.

#include <sys/prctl.h>
#include <unistd.h>

#include <numeric>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "communication.h"
#include "direct.h"
#include "transfer.h"

namespace collectives {
namespace {

using Dims = std::vector<int64_t>;

int64_t Product(const Dims& dims, size_t begin, size_t end) {
  return std::accumulate(dims.begin() + begin, dims.begin() + end, int64_t{1}, std::multiplies<>());
}

// A collective, whatever the shape of its tensors; see the attributes of the operator.
struct Collectives {
  std::string kind, reducer, fill;
  tensorflow::DataType dtype;
  std::vector<int> members;
  int place = 0;
  int split_dim = 0, join_dim = 0;
  Dims sent, received;  // of an exchange: per member first and last row
  int64_t rows = 0, most_rows = 0, extent = 0;

  int64_t itemsize() const { return tensorflow::DataTypeSize(dtype); }
  int64_t size() const { return static_cast<int64_t>(members.size()); }
  bool splits() const { return kind == "reduce_scatter" || kind == "alltoall"; }
  bool exchanges() const { return kind == "exchange" || kind == "exchange_sum"; }

  // Empty where all is well.
  std::string Wrong(const Dims& dims) const {
    if (exchanges() && dims[split_dim] != rows) {
      return "an exchange is given the rows that its windows are for. Got " +
             std::to_string(dims[split_dim]) + " rows for " + std::to_string(rows) + ".";
    }
    if (!splits() || dims[split_dim] % size() == 0) return "";
    return "a dimension that a collective splits divides by the size of the group. Got size " +
           std::to_string(dims[split_dim]) + " of dimension " + std::to_string(split_dim) +
           " for " + std::to_string(size()) + " ranks: pad it.";
  }

  Dims Result(Dims dims) const {
    if (splits()) dims[split_dim] /= size();
    if (kind == "allgather" || kind == "alltoall") dims[join_dim] *= size();
    if (exchanges()) dims[split_dim] = extent;
    return dims;
  }

  int64_t RowBytes(const Dims& dims) const {
    return Product(dims, split_dim + 1, dims.size()) * itemsize();
  }

  // What members send to be added up is received there.
  int64_t ScratchBytes(const Dims& dims) const {
    if (kind != "exchange_sum") return 0;
    int64_t rows = 0;
    for (int64_t i = 0; i < size(); ++i) rows += received[2 * i + 1] - received[2 * i];
    return rows * Product(dims, 0, split_dim) * RowBytes(dims);
  }

  void Run(Window& window, const Dims& dims, char* in, char* out, char* scratch) const;
  void Allreduce(Window& window, const Arrays& arrays) const;

 private:
  // The shards along a dimension of an array that begins at `base`.
  std::vector<Runs> Shards(char* base, const Dims& shard, int dim) const {
    const int64_t bytes = Product(shard, dim, shard.size()) * itemsize();
    std::vector<Runs> found;
    for (int64_t i = 0; i < size(); ++i) {
      found.push_back({base + i * bytes, Product(shard, 0, dim), size() * bytes, bytes});
    }
    return found;
  }

  void Exchange(Window& window, const Dims& dims, char* in, char* out, char* scratch) const;
  // What each sends each other, at most `most` bytes in runs of `run_bytes` or so.
  void Swap(Window& window, const std::vector<Runs>& sent, const std::vector<Runs>& received,
            int64_t most, int64_t run_bytes, int64_t result_bytes) const;
};

void Collectives::Run(Window& window, const Dims& dims, char* in, char* out, char* scratch) const {
  if (exchanges()) return Exchange(window, dims, in, out, scratch);
  const int64_t bytes = Product(dims, 0, dims.size()) * itemsize();
  if (bytes == 0) return;
  if (kind == "allreduce") {
    Arrays arrays;
    arrays.Add({in, out, bytes});
    return Allreduce(window, arrays);
  }
  const int64_t result_bytes = Product(Result(dims), 0, dims.size()) * itemsize();
  Group& group = window.Find(members);
  Dims shard = dims;
  if (splits()) shard[split_dim] /= size();
  if (kind == "reduce_scatter") {
    const auto sent = Shards(in, shard, split_dim);
    Collective(window, group, result_bytes)
        .ReduceScatter(sent, out, bytes / size(), itemsize(), FindReduce(dtype, reducer));
    return;
  }
  const auto received = Shards(out, shard, join_dim);
  if (kind == "allgather") {
    const Runs sent{in, 1, bytes, bytes};
    if (DirectCollective::Pays(window, size(), bytes, received[0].bytes, result_bytes)) {
      DirectCollective(window, group).Gather(sent, received);
    } else {
      Collective(window, group, result_bytes).Gather(sent, received);
    }
    return;
  }
  const auto sent = Shards(in, shard, split_dim);
  Swap(window, sent, received, bytes / size(), std::min(sent[0].bytes, received[0].bytes),
       result_bytes);
}

void Collectives::Swap(Window& window, const std::vector<Runs>& sent,
                       const std::vector<Runs>& received, int64_t most, int64_t run_bytes,
                       int64_t result_bytes) const {
  Group& group = window.Find(members);
  // Where ranks share cores, chunk by chunk they would wait for each other.
  const int64_t written = window.shares_cores() ? 0 : result_bytes;
  if (DirectCollective::Pays(window, size(), most, run_bytes, written)) {
    DirectCollective(window, group).Exchange(sent, received);
  } else {
    Collective(window, group, result_bytes).Exchange(sent, received, most);
  }
}

void Collectives::Allreduce(Window& window, const Arrays& arrays) const {
  if (arrays.bytes() == 0) return;
  Collective collective(window, window.Find(members), arrays.bytes());
  collective.Allreduce(arrays, itemsize(), FindReduce(dtype, reducer));
}

void Collectives::Exchange(Window& window, const Dims& dims, char* in, char* out,
                           char* scratch) const {
  const int64_t runs = Product(dims, 0, split_dim), row = RowBytes(dims);
  const int64_t stride = dims[split_dim] * row;
  const Runs result{out, runs, extent * row, extent * row};
  auto rows = [&](const Dims& of, const Runs& whole, int64_t i) {
    return Runs{whole.base + of[2 * i] * row, whole.count, whole.stride,
                (of[2 * i + 1] - of[2 * i]) * row};
  };
  const bool adds = kind == "exchange_sum";
  std::vector<Runs> to(size()), from(size());
  std::vector<Rows> blocks;
  for (int64_t i = 0; i < size(); ++i) {
    const Runs mine = rows(sent, {in, runs, stride, stride}, i);
    const Runs theirs = rows(received, result, i);
    if (i != place) {
      to[i] = mine;
      from[i] = adds ? Runs{scratch, runs, theirs.bytes, theirs.bytes} : theirs;
      scratch += adds ? theirs.total() : 0;
    } else if (!adds) {
      CopyRuns(theirs.base, theirs.stride, mine.base, mine.stride, mine.bytes, runs, false);
    }
    blocks.push_back({i != place ? from[i] : mine, received[2 * i], received[2 * i + 1]});
  }
  if (!adds) {  // beyond the ends of the whole
    int64_t first = extent, last = 0;
    for (int64_t i = 0; i < size(); ++i) {
      if (received[2 * i] == received[2 * i + 1]) continue;
      first = std::min(first, received[2 * i]);
      last = std::max(last, received[2 * i + 1]);
    }
    last = std::max(first, last);
    const int64_t item = itemsize();
    for (int64_t run = 0; run < runs; ++run) {
      for (const auto& [begin, end] : {std::pair(int64_t{0}, first), std::pair(last, extent)}) {
        char* at = out + run * extent * row + begin * row;
        for (int64_t i = 0; i < (end - begin) * row; i += item) std::memcpy(at + i, fill.data(), item);
      }
    }
  }
  if (most_rows * runs * row > 0) {
    const int64_t most = most_rows * runs * row;
    Swap(window, to, from, most, most_rows * row, most);
  }
  if (adds) AddUp(blocks, result, row, itemsize(), FindReduce(dtype, "sum"));
}

using Communication = CommunicationIn<Window>;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// What is common to operators that run a collective.
class CollectiveOp : public tensorflow::AsyncOpKernel {
 public:
  explicit CollectiveOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("T", &what_.dtype));
    OP_REQUIRES_OK(context, context->GetAttr("reducer", &what_.reducer));
    OP_REQUIRES_OK(context, context->GetAttr("members", &what_.members));
    OP_REQUIRES_OK(context, context->GetAttr("place", &what_.place));
    OP_REQUIRES_OK(context, context->GetAttr("window", &window_));
    OP_REQUIRES_OK(context, context->GetAttr("call", &call_));
    OP_REQUIRES_OK(context, context->GetAttr("overlaps", &overlaps_));
  }

  // Giving it to the communication thread takes little, and is not to wait for what this one does next.
  bool IsExpensive() override { return !overlaps_; }

 protected:
  void Run(OpKernelContext* context, DoneCallback done, std::function<void(Window&)> what) {
    auto work = [this, context, done, what = std::move(what)] {
      const std::string failed = Communication::Get().Run(window_, call_, what);
      OP_REQUIRES_ASYNC(context, failed.empty(), absl::AbortedError(failed), done);
      done();
    };
    if (overlaps_) {
      Communication::Get().Submit(std::move(work));
    } else {  // here: two changes of threads would take longer than a small collective
      work();
    }
  }

  Collectives what_;

 private:
  int window_ = 0;
  int64_t call_ = 0;
  bool overlaps_ = false;
};

char* Bytes(const Tensor& tensor) { return const_cast<char*>(tensor.tensor_data().data()); }

class MoveOp : public CollectiveOp {
 public:
  explicit MoveOp(OpKernelConstruction* context) : CollectiveOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("kind", &what_.kind));
    OP_REQUIRES_OK(context, context->GetAttr("fill", &what_.fill));
    OP_REQUIRES_OK(context, context->GetAttr("split_dim", &what_.split_dim));
    OP_REQUIRES_OK(context, context->GetAttr("join_dim", &what_.join_dim));
    OP_REQUIRES_OK(context, context->GetAttr("sent", &what_.sent));
    OP_REQUIRES_OK(context, context->GetAttr("received", &what_.received));
    OP_REQUIRES_OK(context, context->GetAttr("rows", &what_.rows));
    OP_REQUIRES_OK(context, context->GetAttr("most_rows", &what_.most_rows));
    OP_REQUIRES_OK(context, context->GetAttr("extent", &what_.extent));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const Tensor& in = context->input(0);
    Dims dims;
    for (int i = 0; i < in.dims(); ++i) dims.push_back(in.dim_size(i));
    const std::string wrong = what_.Wrong(dims);
    OP_REQUIRES_ASYNC(context, wrong.empty(), absl::InvalidArgumentError(wrong), done);
    tensorflow::TensorShape shape;
    for (int64_t dim : what_.Result(dims)) shape.AddDim(dim);
    char* from = Bytes(in);
    Tensor* out = nullptr;
    if (what_.kind == "allreduce") {
      OP_REQUIRES_OK_ASYNC(
          context, context->forward_input_or_allocate_output({0}, 0, shape, &out), done);
    } else {
      OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, shape, &out), done);
    }
    Tensor scratch;
    const tensorflow::TensorShape bytes({what_.ScratchBytes(dims)});
    OP_REQUIRES_OK_ASYNC(
        context, context->allocate_temp(tensorflow::DT_UINT8, bytes, &scratch), done);
    Run(context, done, [this, dims, from, to = Bytes(*out), scratch](Window& window) {
      what_.Run(window, dims, from, to, Bytes(scratch));
    });
  }
};

class AllreduceOp : public CollectiveOp {
 public:
  using CollectiveOp::CollectiveOp;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Arrays arrays;
    for (int i = 0; i < context->num_inputs(); ++i) {
      const Tensor& in = context->input(i);
      const int64_t bytes = in.NumElements() * what_.itemsize();
      char* from = Bytes(in);  // the input may be the output's from here on
      Tensor* out = nullptr;
      OP_REQUIRES_OK_ASYNC(
          context, context->forward_input_or_allocate_output({i}, i, in.shape(), &out), done);
      arrays.Add({from, Bytes(*out), bytes});
    }
    Run(context, done, [this, arrays](Window& window) { what_.Allreduce(window, arrays); });
  }
};

// The members are places in the window. An exchange has `rows` along split_dim and cuts
// [sent[2i], sent[2i + 1]) of them for member i. It has rows [received[2i], received[2i + 1]) of its result, of `extent`
// rows, from member i; no member sends another more than most_rows. `fill` has the bytes of an
// element, and `call` tells who observes which call it is; `overlaps`
// says whether computing goes on meanwhile.
REGISTER_OP("CollectivesMove")
    .Input("value: T")
    .Output("result: T")
    .Attr("T: type")
    .Attr("window: int")
    .Attr("call: int")
    .Attr("overlaps: bool")
    .Attr("kind: {'allreduce', 'reduce_scatter', 'allgather', 'alltoall', 'exchange', 'exchange_sum'}")
    .Attr("reducer: string = ''")
    .Attr("members: list(int)")
    .Attr("place: int")
    .Attr("split_dim: int = 0")
    .Attr("join_dim: int = 0")
    .Attr("sent: list(int) = []")
    .Attr("received: list(int) = []")
    .Attr("rows: int = 0")
    .Attr("most_rows: int = 0")
    .Attr("extent: int = 0")
    .Attr("fill: string = ''")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->UnknownShape());
      return absl::OkStatus();
    });

REGISTER_KERNEL_BUILDER(Name("CollectivesMove").Device(tensorflow::DEVICE_CPU), MoveOp);

// All-reduces of several tensors as one: of their elements one after another.
REGISTER_OP("CollectivesAllreduce")
    .Input("values: N * T")
    .Output("results: N * T")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .Attr("window: int")
    .Attr("call: int")
    .Attr("overlaps: bool")
    .Attr("reducer: string")
    .Attr("members: list(int)")
    .Attr("place: int")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
      return absl::OkStatus();
    });

REGISTER_KERNEL_BUILDER(Name("CollectivesAllreduce").Device(tensorflow::DEVICE_CPU), AllreduceOp);

}  // namespace
}  // namespace collectives

extern "C" {

// Makes a window of memory that all ranks have mapped, all zeros; returns its number. `processes` are
// those of the `ranks` ranks where each may read the others' memory, which they do from `least_read`
// bytes on.
int collectives_open(char* base, int rank, int64_t chunk_bytes, double spin_seconds,
                     const int* processes, int ranks, int64_t least_read, double bypass_below) {
  return collectives::Communication::Get().Add(std::make_unique<collectives::Window>(
      base, rank, chunk_bytes, spin_seconds, std::vector<pid_t>(processes, processes + ranks),
      least_read, bypass_below));
}

// Lets ranks that the same process has started read this one's memory, where Linux's Yama asks for it.
void collectives_let_read() { prctl(PR_SET_PTRACER, getppid(), 0, 0, 0); }

// Whether so many bytes in the memory of a process are these.
bool collectives_reads(int process, const char* there, const char* bytes, int64_t size) {
  std::string found(size, 0);
  collectives::Reads reads(process);
  reads.Add(found.data(), there, size);
  try {
    reads.Do();
  } catch (const std::exception&) {
    return false;
  }
  return found == std::string(bytes, size);
}

// The bytes of a window of so many ranks.
int64_t collectives_window_bytes(int ranks, int64_t chunk_bytes) {
  return sizeof(collectives::Header) + ranks * collectives::kBuffers * chunk_bytes;
}

void collectives_observe(int (*before)(int64_t, char*, int),
                         void (*after)(int64_t, double, double, double)) {
  collectives::Communication::Get().Observe(before, after);
}

// The seconds of all collectives that nobody has observed.
double collectives_seconds() { return collectives::Communication::Get().seconds(); }

// The call of the collective that runs in a window, or -1; since when, by `Now`.
int64_t collectives_running(int window, double* since) {
  const auto place = collectives::Communication::Get().Running(since);
  return place.memory == window ? place.call : -1;
}

// A collective of float32[rows, columns] outside of a graph, but for sums of what is exchanged. The
// attributes are the operator's; `windows` has the first and last rows that an exchange sends each
// member, then those that it receives. Returns the seconds of a processor that it had.
double collectives_run(int window, const char* kind, const int* members, int size, int place,
                     int64_t rows, int64_t columns, int split_dim, int join_dim,
                     const int64_t* windows, int64_t most_rows, int64_t extent, char* in,
                     char* out) {
  collectives::Collectives what;
  what.kind = kind;
  what.reducer = "sum";
  what.fill = std::string(sizeof(float), 0);
  what.dtype = tensorflow::DT_FLOAT;
  what.members.assign(members, members + size);
  what.place = place;
  what.split_dim = split_dim;
  what.join_dim = join_dim;
  what.most_rows = most_rows;
  what.extent = extent;
  if (what.exchanges()) {
    what.sent.assign(windows, windows + 2 * size);
    what.received.assign(windows + 2 * size, windows + 4 * size);
  }
  double worked = 0.0;
  collectives::Communication::Get().Run(window, -1, [&](collectives::Window& shared) {
    worked -= collectives::Worked();
    what.Run(shared, {rows, columns}, in, out, nullptr);
    worked += collectives::Worked();
  });
  return worked;
}

}  // extern "C"
