// Messages between ranks of several machines, over connections of their own.
//
// One thread of the process sends and receives. A sender hands its tensor over and continues. A message
// that arrives before its receiver waits is kept. So no rank waits for a receiver, and messages of
// different tags may be received in any order.

#ifndef COLLECTIVES_NATIVE_POST_H_
#define COLLECTIVES_NATIVE_POST_H_

#include <sys/eventfd.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "connections.h"
#include "window.h"

namespace collectives {

class Post {
 public:
  using Done = std::function<void(const std::string& failure)>;

  // Starts the thread, which ends with the process.
  explicit Post(std::vector<Connection> connections)
      : wake_(eventfd(0, EFD_NONBLOCK)), connections_(std::move(connections)), lines_(connections_.size()) {
    std::thread([this] { Work(); }).detach();
  }

  // Sends bytes that stay valid until `sent` is destroyed.
  void Send(int target, int64_t tag, const char* from, int64_t bytes, std::function<void()> sent) {
    std::lock_guard<std::mutex> lock(mutex_);
    lines_[target].out.push_back({{tag, bytes}, from, 0, std::move(sent)});
    Wake();
  }

  // Writes the first unreceived message of a rank with a tag to `to`, then calls `done`.
  void Receive(int source, int64_t tag, char* to, int64_t bytes, int64_t call, Done done) {
    std::unique_lock<std::mutex> lock(mutex_);
    Line& line = lines_[source];
    auto& arrived = line.arrived[tag];
    if (arrived.empty() && line.failure.empty()) {
      line.waiting[tag].push_back({to, bytes, call, Now(), std::move(done)});
      return;
    }
    std::string failure = line.failure;
    if (!arrived.empty()) {
      failure = Copied(arrived.front(), to, bytes);
      arrived.pop_front();
    }
    lock.unlock();
    done(failure);
  }

  // Returns the call that has waited longest, or -1; sets `since` to the time when it began.
  int64_t Waiting(double* since) {
    std::lock_guard<std::mutex> lock(mutex_);
    int64_t call = -1;
    for (const Line& line : lines_) {
      for (const auto& [tag, waiting] : line.waiting) {
        for (const Waiter& each : waiting) {
          if (call < 0 || each.since < *since) call = each.call, *since = each.since;
        }
      }
    }
    return call;
  }

 private:
  struct Header {
    int64_t tag, bytes;
  };
  struct Outgoing {
    Header header;
    const char* from;
    int64_t done;  // bytes sent, header included
    std::function<void()> sent;
  };
  struct Waiter {
    char* to;
    int64_t bytes, call;
    double since;
    Done done;
  };
  // The messages to one rank and from it.
  struct Line {
    std::deque<Outgoing> out;
    Header header;
    int64_t received = 0;  // bytes of the message that arrives, header included
    std::vector<char> body;
    std::map<int64_t, std::deque<std::vector<char>>> arrived;
    std::map<int64_t, std::deque<Waiter>> waiting;
    std::string failure;
  };

  static constexpr int64_t kHeader = sizeof(Header);

  static std::string Copied(const std::vector<char>& body, char* to, int64_t bytes) {
    if (static_cast<int64_t>(body.size()) != bytes) {
      return "a message has as many bytes as its receiver expects. Got " + std::to_string(body.size()) +
             " for " + std::to_string(bytes) + ".";
    }
    std::memcpy(to, body.data(), bytes);
    return "";
  }

  void Wake() {
    const uint64_t one = 1;
    if (write(wake_, &one, sizeof(one)) < 0) return;  // full: the thread is awake already
  }

  void Work() {
    for (;;) {
      std::vector<pollfd> polled = {{wake_, POLLIN, 0}};
      {
        std::lock_guard<std::mutex> lock(mutex_);
        for (size_t i = 0; i < lines_.size(); ++i) {
          const bool is_open = lines_[i].failure.empty();
          const short events = POLLIN | (lines_[i].out.empty() ? 0 : POLLOUT);
          polled.push_back({is_open ? connections_[i].file() : -1, events, 0});
        }
      }
      poll(polled.data(), polled.size(), -1);
      uint64_t count = 0;
      if (read(wake_, &count, sizeof(count)) < 0) count = 0;
      for (size_t i = 0; i < lines_.size(); ++i) {
        if (polled[i + 1].revents != 0) Advance(i);
      }
    }
  }

  // Sends and receives over one connection as long as it can, and calls those who waited.
  void Advance(size_t i) {
    std::vector<std::pair<Done, std::string>> done;
    std::vector<std::function<void()>> sent;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Line& line = lines_[i];
      try {
        while (SendSome(connections_[i], line, &sent)) {
        }
        while (ReceiveSome(connections_[i], line, &done)) {
        }
      } catch (const std::exception& error) {
        Fail(line, error.what(), &done);
      }
    }
    sent.clear();
    for (auto& [call, failure] : done) call(failure);
  }

  // Returns whether a message was sent completely.
  static bool SendSome(const Connection& connection, Line& line, std::vector<std::function<void()>>* sent) {
    if (line.out.empty()) return false;
    Outgoing& out = line.out.front();
    const int64_t end = kHeader + out.header.bytes;
    Pieces pieces;
    if (out.done < kHeader) {
      pieces.push_back({reinterpret_cast<char*>(&out.header) + out.done, kHeader - out.done});
    }
    const int64_t body = std::max<int64_t>(out.done - kHeader, 0);
    pieces.push_back({const_cast<char*>(out.from) + body, out.header.bytes - body});
    out.done += connection.Send(pieces, end - out.done);
    if (out.done < end) return false;
    sent->push_back(std::move(out.sent));
    line.out.pop_front();
    return true;
  }

  // Returns whether a message was received completely.
  static bool ReceiveSome(const Connection& connection, Line& line,
                          std::vector<std::pair<Done, std::string>>* done) {
    char* header = reinterpret_cast<char*>(&line.header);
    if (line.received < kHeader) {
      line.received += connection.Receive(header + line.received, kHeader - line.received);
      if (line.received < kHeader) return false;
      line.body.resize(line.header.bytes);
    }
    const int64_t end = kHeader + line.header.bytes;
    if (line.received < end) {
      char* to = line.body.data() + (line.received - kHeader);
      line.received += connection.Receive(to, end - line.received);
      if (line.received < end) return false;
    }
    Deliver(line, done);
    line.received = 0;
    return true;
  }

  static void Deliver(Line& line, std::vector<std::pair<Done, std::string>>* done) {
    auto& waiting = line.waiting[line.header.tag];
    if (waiting.empty()) {
      line.arrived[line.header.tag].push_back(std::move(line.body));
    } else {
      Waiter waiter = std::move(waiting.front());
      waiting.pop_front();
      done->emplace_back(std::move(waiter.done), Copied(line.body, waiter.to, waiter.bytes));
    }
    line.body = {};
  }

  static void Fail(Line& line, const std::string& failure, std::vector<std::pair<Done, std::string>>* done) {
    line.failure = failure;
    line.out.clear();
    for (auto& [tag, waiting] : line.waiting) {
      for (Waiter& each : waiting) done->emplace_back(std::move(each.done), failure);
    }
    line.waiting.clear();
  }

  const int wake_;
  std::vector<Connection> connections_;
  std::mutex mutex_;
  std::vector<Line> lines_;
};

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_POST_H_
