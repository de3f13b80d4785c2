// Runs operators that communicate, one at a time, in the calling thread or in a separate thread.

#ifndef COLLECTIVES_NATIVE_COMMUNICATION_H_
#define COLLECTIVES_NATIVE_COMMUNICATION_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "window.h"

namespace collectives {

// The times of one call: its start and its end, and the seconds of a processor in between.
struct Note {
  int64_t call;
  double started, ended, worked;
};

// The most notes that wait for `TakeNotes`: 2 MiB of them.
inline constexpr size_t kMostNotes = size_t{1} << 16;

// The thread that communicates through memories of one type, with the state of the running call.
// There is one per process.
template <typename Memory>
class CommunicationIn {
 public:
  using Before = int (*)(int64_t call, char* reason, int size);

  static CommunicationIn& Get() {
    static CommunicationIn* communication = new CommunicationIn;  // its thread ends with the process
    return *communication;
  }

  // Adds a memory and returns its number.
  int Add(std::unique_ptr<Memory> memory) {
    std::lock_guard<std::mutex> lock(running_);
    memories_.push_back(std::move(memory));
    return static_cast<int>(memories_.size()) - 1;
  }

  // Sets whether each operator notes its times, and a function that is called before each, or null. No
  // operator notes its times while `kMostNotes` wait. If `before` does not return 0, the operator fails
  // with the text that `before` has written to `reason`.
  void Observe(bool notes, Before before) {
    std::lock_guard<std::mutex> lock(running_);
    notes_ = notes;
    before_ = before;
  }

  // Moves at most `room` notes, the oldest first, to `notes`, and returns their number.
  int64_t TakeNotes(Note* notes, int64_t room) {
    std::lock_guard<std::mutex> lock(noting_);  // does not wait for a running call
    const int64_t count = std::min<int64_t>(room, noted_.size());
    std::copy_n(noted_.begin(), count, notes);
    noted_.erase(noted_.begin(), noted_.begin() + count);
    return count;
  }

  double seconds() const { return seconds_.load(); }

  // The running call, and the time when it began; -1 if no call runs.
  struct Place {
    int32_t memory, call;
  };
  Place Running(double* since) const {
    *since = since_;
    return in_;
  }

  void Submit(std::function<void()> work) {
    {
      std::lock_guard<std::mutex> lock(waiting_);
      work_.push_back(std::move(work));
    }
    any_work_.notify_one();
  }

  // Runs a call in the calling thread. Returns the reason of a failure, or an empty string.
  std::string Run(int memory, int64_t call, const std::function<void(Memory&)>& action) {
    std::lock_guard<std::mutex> lock(running_);
    char reason[512] = "";
    if (before_ != nullptr && before_(call, reason, sizeof(reason)) != 0) return reason;
    const double started = Now();
    since_ = started;
    const double worked = notes_ ? Worked() : 0.0;
    in_ = {memory, static_cast<int32_t>(call)};
    const Leave leave{in_};
    try {
      action(*memories_[memory]);
    } catch (const std::exception& error) {
      return error.what();
    }
    const double ended = Now();
    if (!notes_ || !Noted({call, started, ended, Worked() - worked})) {
      seconds_ = seconds_ + (ended - started);
    }
    return "";
  }

 private:
  // Adds a note; returns false if too many wait.
  bool Noted(const Note& note) {
    std::lock_guard<std::mutex> lock(noting_);
    if (noted_.size() >= kMostNotes) return false;
    noted_.push_back(note);
    return true;
  }

  CommunicationIn() {
    std::thread([this] {
      for (;;) {
        std::unique_lock<std::mutex> lock(waiting_);
        any_work_.wait(lock, [this] { return !work_.empty(); });
        std::function<void()> work = std::move(work_.front());
        work_.pop_front();
        lock.unlock();
        work();
      }
    }).detach();
  }

  struct Leave {
    std::atomic<Place>& in;
    ~Leave() { in = {-1, -1}; }
  };

  std::mutex waiting_, running_, noting_;
  std::atomic<Place> in_{{-1, -1}};
  std::atomic<double> since_{0.0};
  std::condition_variable any_work_;
  std::deque<std::function<void()>> work_;
  std::vector<std::unique_ptr<Memory>> memories_;
  Before before_ = nullptr;
  bool notes_ = false;
  std::deque<Note> noted_;
  std::atomic<double> seconds_{0.0};
};

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_COMMUNICATION_H_
