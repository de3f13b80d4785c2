// The operators `CollectivesMove` and `CollectivesAllreduce`: collectives on tensors between ranks.
//
// Within a machine: if collectives overlap with computing, TensorFlow's thread hands the buffers to the
// communication thread and continues. Otherwise TensorFlow's thread runs the collective. Across
// machines the operators only start a collective, which the network's thread runs, and
// `CollectivesWait` waits for its end. Control dependencies chain the collectives, so that their order
// is the same on every rank.

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/denormal.h"
#include "definition.h"
#include "functions.h"
#include "started.h"

namespace collectives {
namespace {

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
    OP_REQUIRES_OK(context, context->GetAttr("as_bfloat16", &definition_.as_bfloat16));
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

// `members` are numbers of ranks in the window or, with `network`, in the network; `place` is the
// position of this rank among them. The input of an exchange has `rows` rows along split_dim. It sends
// rows [sent[2i], sent[2i + 1]) to member i. Its result has `extent` rows, of which rows [received[2i],
// received[2i + 1]) come from member i. No member sends more than most_rows rows to another one. `fill`
// has the bytes of one element for rows beyond the ends. `call` is a number for the observer.
// `overlaps` says whether the process computes meanwhile.
REGISTER_OP("CollectivesMove")
    .Input("value: T")
    .Output("result: T")
    .Attr("T: type")
    .Attr("window: int")
    .Attr("call: int")
    .Attr("overlaps: bool")
    .Attr("network: int = -1")
    .Attr("as_bfloat16: bool = false")
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
    .Attr("as_bfloat16: bool = false")
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
