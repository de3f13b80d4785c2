// Collectives that one operator starts and another one waits for.

#ifndef COLLECTIVES_NATIVE_STARTED_H_
#define COLLECTIVES_NATIVE_STARTED_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace collectives {

// A collective that has been started. Any thread may end it and wait for it.
class StartedCall {
 public:
  using Done = std::function<void(const std::string& failure)>;

  // Ends the call; `failure` is the reason of a failure, or empty.
  void End(const std::string& failure) {
    std::unique_lock<std::mutex> lock(mutex_);
    has_ended_ = true;
    failure_ = failure;
    const Done done = std::exchange(done_, nullptr);
    lock.unlock();
    if (done) done(failure);
  }

  // Calls `done` once the call has ended, at once if it already has.
  void Await(Done done) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!has_ended_) {
      done_ = std::move(done);
      return;
    }
    lock.unlock();
    done(failure_);
  }

 private:
  std::mutex mutex_;
  bool has_ended_ = false;
  std::string failure_;
  Done done_;
};

// The calls of this process that were started and not waited for, by network and number.
class StartedCalls {
 public:
  static StartedCalls& Get() {
    static StartedCalls* calls = new StartedCalls;
    return *calls;
  }

  std::shared_ptr<StartedCall> Start(int network, int64_t call) {
    std::lock_guard<std::mutex> lock(mutex_);
    return calls_[{network, call}] = std::make_shared<StartedCall>();
  }

  // Takes a call out, for the one operator that waits for it. A call that is not there has failed.
  std::shared_ptr<StartedCall> Take(int network, int64_t call) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = calls_.extract({network, call});
    if (!found.empty()) return std::move(found.mapped());
    auto missing = std::make_shared<StartedCall>();
    missing->End("A collective is started before it is waited for, and waited for once. Got one that was not started.");
    return missing;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int64_t>, std::shared_ptr<StartedCall>> calls_;
};

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_STARTED_H_
