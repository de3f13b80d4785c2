// The operators `CollectivesSend` and `CollectivesReceive`, which move a tensor from one rank to another:
// through memory within a machine, over a connection between machines. Control dependencies order them,
// as they order `CollectivesMove`.

#include "communication.h"
#include "mail.h"
#include "post.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace collectives {
namespace {

using Communication = CommunicationIn<Mail>;

// The posts of this process, by number. They are added before operators run.
std::vector<Post*>& Posts() {
  static std::vector<Post*>* posts = new std::vector<Post*>;
  return *posts;
}

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class MessageOp : public tensorflow::AsyncOpKernel {
 public:
  explicit MessageOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("member", &member_));
    OP_REQUIRES_OK(context, context->GetAttr("tag", &tag_));
    OP_REQUIRES_OK(context, context->GetAttr("mail", &mail_));
    OP_REQUIRES_OK(context, context->GetAttr("call", &call_));
    OP_REQUIRES_OK(context, context->GetAttr("overlaps", &overlaps_));
    OP_REQUIRES_OK(context, context->GetAttr("post", &post_));
  }

  // An operator that only hands its work to the communication thread is cheap, so TensorFlow runs it
  // at once.
  bool IsExpensive() override { return !overlaps_ && post_ < 0; }

 protected:
  void Run(OpKernelContext* context, DoneCallback done, std::function<void(Mail&)> action) {
    auto work = [this, context, done = std::move(done), action = std::move(action)] {
      const std::string failure = Communication::Get().Run(mail_, call_, action);
      OP_REQUIRES_ASYNC(context, failure.empty(), absl::AbortedError(failure), done);
      done();
    };
    if (overlaps_) {
      Communication::Get().Submit(std::move(work));
    } else {
      work();
    }
  }

  int member_ = 0, post_ = -1;
  int64_t tag_ = 0, call_ = 0;

 private:
  int mail_ = 0;
  bool overlaps_ = false;
};

class SendOp : public MessageOp {
 public:
  using MessageOp::MessageOp;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Tensor* sent = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, {}, &sent), done);
    sent->scalar<int32_t>()() = 1;
    const auto bytes = context->input(0).tensor_data();
    if (post_ >= 0) {
      Posts()[post_]->Send(member_, tag_, bytes.data(), bytes.size(), [held = context->input(0)] {});
      return done();
    }
    Run(context, std::move(done), [this, bytes](Mail& mail) {
      mail.Send(member_, tag_, bytes.data(), bytes.size());
    });
  }
};

class ReceiveOp : public MessageOp {
 public:
  explicit ReceiveOp(OpKernelConstruction* context) : MessageOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shape", &shape_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Tensor* received = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, shape_, &received), done);
    const auto bytes = received->tensor_data();
    if (post_ >= 0) {
      char* to = const_cast<char*>(bytes.data());
      Posts()[post_]->Receive(member_, tag_, to, bytes.size(), call_, [=](const std::string& failure) {
        OP_REQUIRES_ASYNC(context, failure.empty(), absl::AbortedError(failure), done);
        done();
      });
      return;
    }
    Run(context, std::move(done), [this, bytes](Mail& mail) {
      mail.Receive(member_, tag_, const_cast<char*>(bytes.data()), bytes.size());
    });
  }

 private:
  tensorflow::TensorShape shape_;
};

// `member` is the number of the other rank in the post if `post` is not -1, otherwise in the mail. `call`
// and `overlaps` have the same meaning as in `CollectivesMove`.
REGISTER_OP("CollectivesSend")
    .Input("value: T")
    .Output("sent: int32")
    .Attr("T: type")
    .Attr("member: int")
    .Attr("tag: int")
    .Attr("mail: int")
    .Attr("call: int")
    .Attr("overlaps: bool")
    .Attr("post: int = -1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

REGISTER_OP("CollectivesReceive")
    .Output("value: T")
    .Attr("T: type")
    .Attr("shape: shape")
    .Attr("member: int")
    .Attr("tag: int")
    .Attr("mail: int")
    .Attr("call: int")
    .Attr("overlaps: bool")
    .Attr("post: int = -1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ExplicitShape);

REGISTER_KERNEL_BUILDER(Name("CollectivesSend").Device(tensorflow::DEVICE_CPU), SendOp);
REGISTER_KERNEL_BUILDER(Name("CollectivesReceive").Device(tensorflow::DEVICE_CPU), ReceiveOp);

}  // namespace
}  // namespace collectives

extern "C" {

// Opens the mail in zeroed memory that all ranks have mapped; returns the number of the mail.
int collectives_mail_open(char* base, int rank, int ranks, int64_t room, int file,
                          double spin_seconds, double bypass_below) {
  return collectives::CommunicationIn<collectives::Mail>::Get().Add(
      std::make_unique<collectives::Mail>(base, rank, ranks, room, file, spin_seconds,
                                          bypass_below));
}

// Returns the offset of the first room.
int64_t collectives_mail_start(int ranks) { return collectives::Mail::Start(ranks); }

// Returns the bytes of its sender's room that a message takes.
int64_t collectives_mail_taken(int64_t bytes) { return collectives::Mail::Taken(bytes); }

// Lets this rank make at least this number of parts of a size in its room.
void collectives_mail_allow(int mail, int64_t size, int64_t parts) {
  collectives::CommunicationIn<collectives::Mail>::Get().Run(
      mail, -1, [=](collectives::Mail& shared) { shared.Allow(size, parts); });
}

// Returns the seconds of all messages.
double collectives_mail_seconds() {
  return collectives::CommunicationIn<collectives::Mail>::Get().seconds();
}

// Returns the number of the call that runs in a mail, or -1; sets `since` to the time of its start.
int64_t collectives_mail_running(int mail, double* since) {
  const auto place = collectives::CommunicationIn<collectives::Mail>::Get().Running(since);
  return place.memory == mail ? place.call : -1;
}

// See `Addresses`.
void collectives_addresses(char* lines, int64_t size) {
  std::strncpy(lines, collectives::Addresses().c_str(), size - 1);
}

// Opens a post of `ranks` ranks with connected sockets, of which it becomes the owner, and returns its
// number. `peers` names the ranks for errors.
int collectives_post_open(int, int ranks, const int* files, const char* const* peers) {
  std::vector<collectives::Connection> connections;
  for (int i = 0; i < ranks; ++i) connections.emplace_back(files[i], peers[i]);
  collectives::Posts().push_back(new collectives::Post(std::move(connections)));
  return static_cast<int>(collectives::Posts().size()) - 1;
}

// Returns the receiver in a post that has waited longest, or -1; sets `since` to the time of its start.
int64_t collectives_post_waiting(int post, double* since) {
  return collectives::Posts()[post]->Waiting(since);
}

}  // extern "C"
