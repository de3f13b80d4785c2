// Collectives in which a rank reads the buffers of the other ranks directly. That saves one copy
// compared with a window, and costs one system call (Linux's process_vm_readv) per read.
//
// Members tell each other the addresses of their buffers through the window. No member leaves before
// all members have read.

#ifndef COLLECTIVES_NATIVE_DIRECT_H_
#define COLLECTIVES_NATIVE_DIRECT_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "transfer.h"
#include "window.h"

namespace collectives {

// Reads from the memory of one process, many pieces per system call.
class Reads {
 public:
  explicit Reads(pid_t process) : process_(process) {}

  void Add(char* to, const char* from, int64_t bytes) {
    if (bytes == 0) return;
    to_.push_back({to, static_cast<size_t>(bytes)});
    from_.push_back({const_cast<char*>(from), static_cast<size_t>(bytes)});
    if (to_.size() == kMost) Do();
  }

  void Do() {
    for (size_t done = 0; done < to_.size();) {
      const ssize_t got = process_vm_readv(process_, &to_[done], to_.size() - done, &from_[done],
                                           to_.size() - done, 0);
      if (got <= 0) {
        throw std::runtime_error("the memory of another rank can be read. Got process " +
                                 std::to_string(process_) + ": " +
                                 std::strerror(got < 0 ? errno : EFAULT) + ".");
      }
      size_t left = got;  // the system reads at most 2 GiB at once
      for (; done < to_.size() && left >= to_[done].iov_len; ++done) left -= to_[done].iov_len;
      if (left == 0) continue;
      for (iovec* piece : {&to_[done], &from_[done]}) {
        piece->iov_base = static_cast<char*>(piece->iov_base) + left;
        piece->iov_len -= left;
      }
    }
    to_.clear();
    from_.clear();
  }

 private:
  static constexpr size_t kMost = 1024;  // IOV_MAX
  pid_t process_;
  std::vector<iovec> to_, from_;
};

// One collective of this rank in a group, like `Collective`. Only collectives that move bytes are
// here, because a reduction would not become faster.
class DirectCollective {
 public:
  // Whether the members can read directly, and gain by it. `bytes` is the size of what one member
  // gives another, in runs of `run_bytes`. All members get the same answer. Large results are better
  // written past the caches, which process_vm_readv does not do.
  static bool Pays(const Window& window, int members, int64_t bytes, int64_t run_bytes,
                   int64_t result_bytes) {
    return window.Reads(bytes, run_bytes) && members * result_bytes < 2 * kStreamed &&
           members * static_cast<int64_t>(sizeof(Runs)) <= window.chunk_bytes();
  }

  DirectCollective(Window& window, Group& group)
      : window_(window), group_(group), n_(group.size()) {
    window_.Enter(group_);
  }
  ~DirectCollective() {
    ++group_.rounds;  // a direct collective has one round
    window_.Leave(group_);
    if (std::uncaught_exceptions() == 0) window_.AwaitLeft(group_);
  }

  // See `Collective`.
  void Gather(const Runs& sent, const std::vector<Runs>& received) {
    Exchange(std::vector<Runs>(n_, sent), received);
  }

  void Exchange(const std::vector<Runs>& sent, const std::vector<Runs>& received) {
    std::copy(sent.begin(), sent.end(), Told(group_.place));
    window_.Arrive(group_, 0);
    CopyBetween(sent[group_.place], received[group_.place], false);
    window_.Await(group_, 0);
    for (int k = 1; k < n_; ++k) {  // members read from different members at the same time
      const int i = (group_.place + k) % n_;
      ReadRuns(i, Joined(Told(i)[group_.place]), Joined(received[i]));
    }
  }

 private:
  // The array in which a member tells the runs that it sends to each member.
  Runs* Told(int member) const {
    return reinterpret_cast<Runs*>(window_.Buffer(group_, member, 0));
  }

  // Joins runs without gaps between them into one run.
  static Runs Joined(const Runs& runs) {
    return runs.stride == runs.bytes ? Runs{runs.base, 1, runs.total(), runs.total()} : runs;
  }

  // Reads runs of another member into runs of this member.
  void ReadRuns(int member, const Runs& from, const Runs& to) const {
    Reads reads(window_.Process(group_, member));
    for (int64_t at = 0; at < to.total();) {
      const int64_t size = std::min(from.bytes - at % from.bytes, to.bytes - at % to.bytes);
      reads.Add(to.base + at / to.bytes * to.stride + at % to.bytes,
                from.base + at / from.bytes * from.stride + at % from.bytes, size);
      at += size;
    }
    reads.Do();
  }

  Window& window_;
  Group& group_;
  const int n_;
};

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_DIRECT_H_
