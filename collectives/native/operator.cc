// The operators `CollectivesMove` and `CollectivesAllreduce`: collectives on tensors between ranks.
//
// Within a machine: if collectives overlap with computing, TensorFlow's thread hands the buffers to the
// communication thread and continues. Otherwise TensorFlow's thread runs the collective. Across
// machines the operators only start a collective, which the network's thread runs, and
// `CollectivesWait` waits for its end. Control dependencies chain the collectives, so that their order
// is the same on every rank.

#include <sys/prctl.h>
#include <unistd.h>

#include <numeric>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/denormal.h"
#include "board.h"
#include "communication.h"
#include "direct.h"
#include "dtypes.h"
#include "network.h"
#include "started.h"
#include "transfer.h"

namespace collectives {
namespace {

using Dims = std::vector<int64_t>;

int64_t Product(const Dims& dims, size_t begin, size_t end) {
  return std::accumulate(dims.begin() + begin, dims.begin() + end, int64_t{1}, std::multiplies<>());
}

// A collective without the shape of its tensors. The fields are attributes of the operator.
struct Definition {
  std::string kind, reducer, fill;
  bool rounds = false;  // whether an all-reduce across machines sends float32 as bfloat16
  tensorflow::DataType dtype;
  std::vector<int> members;
  int place = 0;
  int split_dim = 0, join_dim = 0;
  Dims sent, received;  // of an exchange: for each member the first row and the one after the last
  int64_t rows = 0, most_rows = 0, extent = 0;

  int64_t itemsize() const { return tensorflow::DataTypeSize(dtype); }
  int64_t size() const { return static_cast<int64_t>(members.size()); }
  bool splits() const { return kind == "reduce_scatter" || kind == "alltoall"; }
  bool exchanges() const { return kind == "exchange" || kind == "exchange_sum"; }

  // Returns the error of an input with these dimensions, or an empty string.
  std::string Error(const Dims& dims) const {
    if (exchanges() && dims[split_dim] != rows) {
      return "the input of an exchange has the rows for which its windows are made. Got " +
             std::to_string(dims[split_dim]) + " rows for " + std::to_string(rows) + ".";
    }
    if (!splits() || dims[split_dim] % size() == 0) return "";
    return "the size of a dimension that is split is a multiple of the number of ranks. Got size " +
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

  // The bytes of the temporary buffer, which receives the rows that are summed.
  int64_t ScratchBytes(const Dims& dims) const {
    if (kind != "exchange_sum") return 0;
    int64_t rows = 0;
    for (int64_t i = 0; i < size(); ++i) rows += received[2 * i + 1] - received[2 * i];
    return rows * Product(dims, 0, split_dim) * RowBytes(dims);
  }

  // A carrier is a `Window` or a `Network`.
  template <typename Carrier>
  void Run(Carrier& carrier, const Dims& dims, char* in, char* out, char* scratch) const;
  template <typename Carrier>
  void Allreduce(Carrier& carrier, const Arrays& arrays) const;

 private:
  // Returns the shards, along a dimension, of an array that begins at `base`.
  std::vector<Runs> Shards(char* base, const Dims& shard, int dim) const {
    const int64_t bytes = Product(shard, dim, shard.size()) * itemsize();
    std::vector<Runs> shards;
    for (int64_t i = 0; i < size(); ++i) {
      shards.push_back({base + i * bytes, Product(shard, 0, dim), size() * bytes, bytes});
    }
    return shards;
  }

  template <typename Carrier>
  void Exchange(Carrier& carrier, const Dims& dims, char* in, char* out, char* scratch) const;
  void Collect(Window& window, const Runs& sent, const std::vector<Runs>& received,
               int64_t result_bytes) const;
  void Collect(Network& network, const Runs& sent, const std::vector<Runs>& received,
               int64_t result_bytes) const;
  // Each member sends each other member at most `most` bytes, in runs of about `run_bytes`.
  void Swap(Window& window, const std::vector<Runs>& sent, const std::vector<Runs>& received,
            int64_t most, int64_t run_bytes, int64_t result_bytes) const;
  void Swap(Network& network, const std::vector<Runs>& sent, const std::vector<Runs>& received,
            int64_t most, int64_t run_bytes, int64_t result_bytes) const;
};

// Returns a collective of the members. `result_bytes` is the size of this member's result.
Collective Begin(Window& window, const std::vector<int>& members, int64_t result_bytes) {
  return Collective(window, window.Find(members), result_bytes);
}
NetworkCollective Begin(Network& network, const std::vector<int>& members, int64_t) {
  return NetworkCollective(network, members);
}

template <typename Carrier>
void Definition::Run(Carrier& carrier, const Dims& dims, char* in, char* out, char* scratch) const {
  if (exchanges()) return Exchange(carrier, dims, in, out, scratch);
  const int64_t bytes = Product(dims, 0, dims.size()) * itemsize();
  if (bytes == 0) return;
  if (kind == "allreduce") {
    Arrays arrays;
    arrays.Add({in, out, bytes});
    return Allreduce(carrier, arrays);
  }
  const int64_t result_bytes = Product(Result(dims), 0, dims.size()) * itemsize();
  Dims shard = dims;
  if (splits()) shard[split_dim] /= size();
  if (kind == "reduce_scatter") {
    const auto sent = Shards(in, shard, split_dim);
    Begin(carrier, members, result_bytes)
        .ReduceScatter(sent, out, bytes / size(), itemsize(), FindReduce(dtype, reducer));
    return;
  }
  const auto received = Shards(out, shard, join_dim);
  if (kind == "allgather") {
    return Collect(carrier, Runs{in, 1, bytes, bytes}, received, result_bytes);
  }
  const auto sent = Shards(in, shard, split_dim);
  Swap(carrier, sent, received, bytes / size(), std::min(sent[0].bytes, received[0].bytes),
       result_bytes);
}

void Definition::Collect(Window& window, const Runs& sent, const std::vector<Runs>& received,
                         int64_t result_bytes) const {
  if (DirectCollective::Pays(window, size(), sent.total(), received[0].bytes, result_bytes)) {
    DirectCollective(window, window.Find(members)).Gather(sent, received);
  } else {
    Begin(window, members, result_bytes).Gather(sent, received);
  }
}

void Definition::Collect(Network& network, const Runs& sent, const std::vector<Runs>& received,
                         int64_t result_bytes) const {
  Begin(network, members, result_bytes).Gather(sent, received);
}

void Definition::Swap(Window& window, const std::vector<Runs>& sent,
                       const std::vector<Runs>& received, int64_t most, int64_t run_bytes,
                       int64_t result_bytes) const {
  Group& group = window.Find(members);
  // Ranks that share cores would wait for each other chunk by chunk.
  const int64_t written = window.shares_cores() ? 0 : result_bytes;
  if (DirectCollective::Pays(window, size(), most, run_bytes, written)) {
    DirectCollective(window, group).Exchange(sent, received);
  } else {
    Collective(window, group, result_bytes).Exchange(sent, received, most);
  }
}

void Definition::Swap(Network& network, const std::vector<Runs>& sent,
                      const std::vector<Runs>& received, int64_t, int64_t,
                      int64_t result_bytes) const {
  Begin(network, members, result_bytes).Exchange(sent, received);
}

template <typename Carrier>
void Definition::Allreduce(Carrier& carrier, const Arrays& arrays) const {
  if (arrays.bytes() == 0) return;
  const Reduce reduce = FindReduce(dtype, reducer);
  if constexpr (std::is_same_v<Carrier, Network>) {
    NetworkCollective(carrier, members).Allreduce(arrays, itemsize(), reduce, rounds);
  } else {
    Begin(carrier, members, arrays.bytes()).Allreduce(arrays, itemsize(), reduce);
  }
}

template <typename Carrier>
void Definition::Exchange(Carrier& carrier, const Dims& dims, char* in, char* out,
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
  if (!adds) {  // fill the rows beyond the ends of the tensor
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
    Swap(carrier, to, from, most, most_rows * row, most);
  }
  if (adds) AddUp(blocks, result, row, itemsize(), FindReduce(dtype, "sum"));
}

using Communication = CommunicationIn<Window>;
using NetworkCommunication = CommunicationIn<Network>;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The base class of operators that run a collective.
class CollectiveOp : public tensorflow::AsyncOpKernel {
 public:
  explicit CollectiveOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("T", &definition_.dtype));
    OP_REQUIRES_OK(context, context->GetAttr("reducer", &definition_.reducer));
    OP_REQUIRES_OK(context, context->GetAttr("members", &definition_.members));
    OP_REQUIRES_OK(context, context->GetAttr("place", &definition_.place));
    OP_REQUIRES_OK(context, context->GetAttr("window", &window_));
    OP_REQUIRES_OK(context, context->GetAttr("call", &call_));
    OP_REQUIRES_OK(context, context->GetAttr("overlaps", &overlaps_));
    OP_REQUIRES_OK(context, context->GetAttr("network", &network_));
    OP_REQUIRES_OK(context, context->GetAttr("rounds", &definition_.rounds));
  }

  // An operator that only hands its work to another thread is cheap, so TensorFlow runs it at once.
  bool IsExpensive() override { return !overlaps_ && network_ < 0; }

 protected:
  // Runs `action` with the window or the network. `held` are tensors that it reads and writes.
  template <typename Action>
  void Run(OpKernelContext* context, DoneCallback done, std::vector<Tensor> held, Action action) {
    if (network_ >= 0) {
      Start(std::move(held), std::move(action));
      return done();
    }
    held.clear();  // the context keeps them; more owners would forbid later operators to reuse them
    auto work = [this, context, done, action = std::move(action)] {
      tensorflow::port::ScopedDontFlushDenormal exact;  // TensorFlow's threads make them zeros
      const std::string failure = Communication::Get().Run(window_, call_, action);
      OP_REQUIRES_ASYNC(context, failure.empty(), absl::AbortedError(failure), done);
      done();
    };
    if (overlaps_) {
      Communication::Get().Submit(std::move(work));
    } else {  // two changes of threads would take longer than a small collective
      work();
    }
  }

  Definition definition_;

 private:
  // Hands a collective to the network's thread. The operator's object may be gone when it runs.
  template <typename Action>
  void Start(std::vector<Tensor> held, Action action) {
    auto started = StartedCalls::Get().Start(network_, call_);
    NetworkCommunication::Get().Submit([held = std::move(held), action = std::move(action), started,
                                        network = network_, call = call_]() mutable {
      tensorflow::port::ScopedDontFlushDenormal exact;
      const std::string failure = NetworkCommunication::Get().Run(network, call, action);
      held.clear();  // before operators that may write into the result's buffer
      started->End(failure);
    });
  }

  int window_ = 0, network_ = -1;
  int64_t call_ = 0;
  bool overlaps_ = false;
};

char* Bytes(const Tensor& tensor) { return const_cast<char*>(tensor.tensor_data().data()); }

class MoveOp : public CollectiveOp {
 public:
  explicit MoveOp(OpKernelConstruction* context) : CollectiveOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("kind", &definition_.kind));
    OP_REQUIRES_OK(context, context->GetAttr("fill", &definition_.fill));
    OP_REQUIRES_OK(context, context->GetAttr("split_dim", &definition_.split_dim));
    OP_REQUIRES_OK(context, context->GetAttr("join_dim", &definition_.join_dim));
    OP_REQUIRES_OK(context, context->GetAttr("sent", &definition_.sent));
    OP_REQUIRES_OK(context, context->GetAttr("received", &definition_.received));
    OP_REQUIRES_OK(context, context->GetAttr("rows", &definition_.rows));
    OP_REQUIRES_OK(context, context->GetAttr("most_rows", &definition_.most_rows));
    OP_REQUIRES_OK(context, context->GetAttr("extent", &definition_.extent));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const Tensor& in = context->input(0);
    Dims dims;
    for (int i = 0; i < in.dims(); ++i) dims.push_back(in.dim_size(i));
    const std::string error = definition_.Error(dims);
    OP_REQUIRES_ASYNC(context, error.empty(), absl::InvalidArgumentError(error), done);
    tensorflow::TensorShape shape;
    for (int64_t dim : definition_.Result(dims)) shape.AddDim(dim);
    char* from = Bytes(in);
    Tensor* out = nullptr;
    if (definition_.kind == "allreduce") {
      OP_REQUIRES_OK_ASYNC(
          context, context->forward_input_or_allocate_output({0}, 0, shape, &out), done);
    } else {
      OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, shape, &out), done);
    }
    Tensor scratch;
    const tensorflow::TensorShape bytes({definition_.ScratchBytes(dims)});
    OP_REQUIRES_OK_ASYNC(
        context, context->allocate_temp(tensorflow::DT_UINT8, bytes, &scratch), done);
    std::vector<Tensor> held = {*out};
    if (from != Bytes(*out)) held.push_back(in);  // otherwise the output has taken the buffer
    Run(context, done, std::move(held),
        [definition = definition_, dims, from, to = Bytes(*out), scratch](auto& carrier) {
          definition.Run(carrier, dims, from, to, Bytes(scratch));
        });
  }
};

class AllreduceOp : public CollectiveOp {
 public:
  using CollectiveOp::CollectiveOp;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Arrays arrays;
    std::vector<Tensor> held;
    for (int i = 0; i < context->num_inputs(); ++i) {
      const Tensor& in = context->input(i);
      const int64_t bytes = in.NumElements() * definition_.itemsize();
      char* from = Bytes(in);  // from here on, the input's buffer may be the output's
      Tensor* out = nullptr;
      OP_REQUIRES_OK_ASYNC(
          context, context->forward_input_or_allocate_output({i}, i, in.shape(), &out), done);
      arrays.Add({from, Bytes(*out), bytes});
      held.push_back(*out);
      if (from != Bytes(*out)) held.push_back(in);
    }
    Run(context, done, std::move(held), [definition = definition_, arrays](auto& carrier) {
      definition.Allreduce(carrier, arrays);
    });
  }
};

// Waits for the end of a collective of the network. The inputs are the outputs of its start.
class WaitOp : public tensorflow::AsyncOpKernel {
 public:
  explicit WaitOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("network", &network_));
    OP_REQUIRES_OK(context, context->GetAttr("call", &call_));
  }

  bool IsExpensive() override { return false; }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    StartedCalls::Get().Take(network_, call_)->Await([context, done](const std::string& failure) {
      OP_REQUIRES_ASYNC(context, failure.empty(), absl::AbortedError(failure), done);
      for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
      done();
    });
  }

 private:
  int network_ = -1;
  int64_t call_ = 0;
};

// `members` are numbers of ranks in the window or, with `network`, in the network; `place` is the position of this rank among them. The
// input of an exchange has `rows` rows along split_dim. It sends rows [sent[2i], sent[2i + 1]) to
// member i. Its result has `extent` rows, of which rows [received[2i], received[2i + 1]) come from
// member i. No member sends more than most_rows rows to another one. `fill` has the bytes of one
// element for rows beyond the ends. `call` is a number for the observer. `overlaps` says whether the
// process computes meanwhile.
REGISTER_OP("CollectivesMove")
    .Input("value: T")
    .Output("result: T")
    .Attr("T: type")
    .Attr("window: int")
    .Attr("call: int")
    .Attr("overlaps: bool")
    .Attr("network: int = -1")
    .Attr("rounds: bool = false")
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

// One all-reduce of several tensors, as if they were joined.
REGISTER_OP("CollectivesAllreduce")
    .Input("values: N * T")
    .Output("results: N * T")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .Attr("window: int")
    .Attr("call: int")
    .Attr("overlaps: bool")
    .Attr("network: int = -1")
    .Attr("rounds: bool = false")
    .Attr("reducer: string")
    .Attr("members: list(int)")
    .Attr("place: int")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
      return absl::OkStatus();
    });

REGISTER_KERNEL_BUILDER(Name("CollectivesAllreduce").Device(tensorflow::DEVICE_CPU), AllreduceOp);

REGISTER_OP("CollectivesWait")
    .Input("started: N * T")
    .Output("results: N * T")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .Attr("network: int")
    .Attr("call: int")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
      return absl::OkStatus();
    });

REGISTER_KERNEL_BUILDER(Name("CollectivesWait").Device(tensorflow::DEVICE_CPU), WaitOp);

}  // namespace
}  // namespace collectives

extern "C" {

// Makes a window in zeroed memory that all ranks have mapped; returns its number. `processes` has the
// processes of the ranks if they may read each other's memory, otherwise it is null. Ranks read at
// least `least_read` bytes that way. All ranks pass the same values, except for `rank`,
// `spin_seconds` and `bypass_below`.
int collectives_open(char* base, int rank, int ranks, int64_t chunk_bytes, double spin_seconds,
                     bool shares_cores, const int* processes, int64_t least_read,
                     double bypass_below) {
  std::vector<pid_t> readable;
  if (processes != nullptr) readable.assign(processes, processes + ranks);
  return collectives::Communication::Get().Add(std::make_unique<collectives::Window>(
      base, rank, ranks, chunk_bytes, spin_seconds, shares_cores, std::move(readable), least_read,
      bypass_below));
}

// Allows the user's processes to read this process's memory, which Linux's Yama otherwise forbids. A
// process has one such permission, and a new one replaces it. MPI may have given the same one for its
// own reads, so it must not become smaller.
void collectives_let_read() { prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); }

// Returns whether this process can read `size` bytes of another process and they equal `bytes`.
bool collectives_reads(int process, const char* there, const char* bytes, int64_t size) {
  std::string copy(size, 0);
  collectives::Reads reads(process);
  reads.Add(copy.data(), there, size);
  try {
    reads.Do();
  } catch (const std::exception&) {
    return false;
  }
  return copy == std::string(bytes, size);
}

// Returns the bytes of a window of `ranks` ranks.
int64_t collectives_window_bytes(int ranks, int64_t chunk_bytes) {
  return collectives::WindowBytes(ranks, chunk_bytes);
}

// Returns the bytes of a board of `ranks` ranks.
int64_t collectives_board_bytes(int ranks) { return collectives::Board::Bytes(ranks); }

// Makes a board in zeroed memory that all ranks have mapped, for as long as the process lives.
void* collectives_board_open(char* base, int rank, int ranks, double spin_seconds) {
  return new collectives::Board(base, rank, ranks, spin_seconds);
}

// Sets `all` to the messages of all ranks; returns false, at once, if messages are too long.
bool collectives_board_gather(void* board, const char* message, int64_t bytes, char* all) {
  if (bytes > collectives::kNote) return false;
  static_cast<collectives::Board*>(board)->Gather(message, bytes, all);
  return true;
}

void collectives_observe(bool notes, int (*before)(int64_t, char*, int)) {
  collectives::Communication::Get().Observe(notes, before);
  collectives::NetworkCommunication::Get().Observe(notes, before);
}

// Moves at most `room` notes to `notes`, and returns their number.
int64_t collectives_take_notes(collectives::Note* notes, int64_t room) {
  const int64_t count = collectives::Communication::Get().TakeNotes(notes, room);
  auto& network = collectives::NetworkCommunication::Get();
  return count + network.TakeNotes(notes + count, room - count);
}

// Returns the seconds of all collectives that noted nothing.
double collectives_seconds() {
  return collectives::Communication::Get().seconds() +
         collectives::NetworkCommunication::Get().seconds();
}

// Writes lines "interface address" to `lines`, at most `size` bytes; see `Addresses`.
void collectives_addresses(char* lines, int64_t size) {
  std::strncpy(lines, collectives::Addresses().c_str(), size - 1);
}

// Makes a network of `ranks` ranks with connected sockets, of which it becomes the owner, and returns
// its number. `peers` names the ranks for errors.
int collectives_network_open(int rank, int ranks, const int* files, const char* const* peers) {
  std::vector<collectives::Connection> connections;
  for (int i = 0; i < ranks; ++i) connections.emplace_back(files[i], peers[i]);
  return collectives::NetworkCommunication::Get().Add(
      std::make_unique<collectives::Network>(rank, std::move(connections)));
}

// Like `collectives_running`, in a network.
int64_t collectives_network_running(int network, double* since) {
  const auto place = collectives::NetworkCommunication::Get().Running(since);
  return place.memory == network ? place.call : -1;
}

// Returns the number of the collective that runs in a window, or -1; sets `since` to the time of its
// start.
int64_t collectives_running(int window, double* since) {
  const auto place = collectives::Communication::Get().Running(since);
  return place.memory == window ? place.call : -1;
}

// Runs a collective on float32[rows, columns] outside of a graph, in a network unless `network` is -1;
// any kind but "exchange_sum". The other arguments are attributes of the operator. `windows` has the operator's `sent`, then `received`.
// Returns the processor seconds of the collective.
double collectives_run(int window, int network, const char* kind, const int* members, int size, int place,
                     int64_t rows, int64_t columns, int split_dim, int join_dim,
                     const int64_t* windows, int64_t most_rows, int64_t extent, char* in,
                     char* out) {
  collectives::Definition definition;
  definition.kind = kind;
  definition.reducer = "sum";
  definition.fill = std::string(sizeof(float), 0);
  definition.dtype = tensorflow::DT_FLOAT;
  definition.members.assign(members, members + size);
  definition.place = place;
  definition.split_dim = split_dim;
  definition.join_dim = join_dim;
  definition.most_rows = most_rows;
  definition.extent = extent;
  if (definition.exchanges()) {
    definition.sent.assign(windows, windows + 2 * size);
    definition.received.assign(windows + 2 * size, windows + 4 * size);
  }
  double worked = 0.0;
  auto run = [&](auto& carrier) {
    worked -= collectives::Worked();
    definition.Run(carrier, {rows, columns}, in, out, nullptr);
    worked += collectives::Worked();
  };
  if (network >= 0) {
    collectives::NetworkCommunication::Get().Run(network, -1, run);
  } else {
    collectives::Communication::Get().Run(window, -1, run);
  }
  return worked;
}

}  // extern "C"
