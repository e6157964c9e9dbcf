// A small thread pool. The calling thread takes part in every job; pieces are taken one by one from
// a shared counter, and the caller waits only for pieces that a worker has begun. So a worker that
// the system has put aside costs nothing until it is given a core, and an idle pool sleeps.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "types.h"

namespace pagedd {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Memory of one worker, grown on demand and kept.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(memory_); }

  // 64-byte aligned; what it held before is lost when it grows.
  char* get(size_t bytes) {
    if (bytes > size_) {
      std::free(memory_);
      size_ = static_cast<size_t>(round_up(static_cast<int64_t>(bytes), 4096));
      memory_ = static_cast<char*>(std::aligned_alloc(64, size_));
      if (memory_ == nullptr) std::abort();
    }
    return memory_;
  }

 private:
  char* memory_ = nullptr;
  size_t size_ = 0;
};

// How often this process is a fork of a fork. A child has none of its parent's workers, and may
// have been copied while one held a lock.
inline std::atomic<int>& forks() {
  static std::atomic<int> count{0};
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks().fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return count;
}

class Pool {
 public:
  explicit Pool(int threads) : forks_(forks().load()) { resize(threads); }
  ~Pool() { resize(1); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  // Not during a job.
  void resize(int threads) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    stopping_ = false;
    threads_ = threads < 1 ? 1 : threads;
    scratch_ = std::vector<Scratch>(static_cast<size_t>(threads_));
    for (int i = 1; i < threads_; ++i) workers_.emplace_back([this, i] { work(i); });
  }

  // Temporary memory of a worker, for one piece; common memory of one operation.
  Scratch& scratch(int worker) { return scratch_[static_cast<size_t>(worker)]; }
  Scratch& common() { return common_; }

  // Calls body(piece, worker) once for each piece, in any order, from all threads.
  template <class F>
  void run(int64_t pieces, F&& body) {
    if (threads_ == 1 || pieces <= 1 || forks().load(std::memory_order_relaxed) != forks_) {
      for (int64_t i = 0; i < pieces; ++i) body(i, 0);
      return;
    }
    context_ = &body;
    call_ = [](void* context, int64_t piece, int worker) {
      (*static_cast<std::remove_reference_t<F>*>(context))(piece, worker);
    };
    dispatch(static_cast<uint64_t>(pieces));
  }

 private:
  using Call = void (*)(void*, int64_t, int);
  using Clock = std::chrono::steady_clock;

  // The state of a job is one word, generation:16 | pieces:24 | next piece:24. A piece is taken by
  // raising `next` in it; once that has succeeded, the job cannot end, so call_ and context_ are
  // those of this generation.
  static uint64_t pieces_of(uint64_t word) { return (word >> 24) & 0xffffff; }
  static uint64_t next_of(uint64_t word) { return word & 0xffffff; }

  bool take(int worker) {
    uint64_t word = word_.load(std::memory_order_acquire);
    while (next_of(word) < pieces_of(word)) {
      if (word_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel)) {
        call_(context_, static_cast<int64_t>(next_of(word)), worker);
        if (done_.fetch_add(1) + 1 == pieces_of(word) && caller_sleeps_.load()) {
          std::lock_guard<std::mutex> lock(mutex_);
          finished_.notify_one();
        }
        return true;
      }
    }
    return false;
  }

  void dispatch(uint64_t pieces) {
    done_.store(0, std::memory_order_relaxed);
    const uint64_t generation = ((word_.load(std::memory_order_relaxed) >> 48) + 1) & 0xffff;
    word_.store(generation << 48 | pieces << 24);
    if (sleepers_.load() > 0) {
      { std::lock_guard<std::mutex> lock(mutex_); }
      wake_.notify_all();
    }
    while (take(0)) {
    }
    const auto complete = [&] { return done_.load(std::memory_order_acquire) == pieces; };
    if (spin(complete)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    caller_sleeps_.store(true);
    finished_.wait(lock, [&] { return done_.load() == pieces; });
    caller_sleeps_.store(false);
  }

  void work(int worker) {
    const auto ready = [&] {
      const uint64_t word = word_.load(std::memory_order_acquire);
      return next_of(word) < pieces_of(word);
    };
    for (;;) {
      while (take(worker)) {
      }
      if (spin(ready)) continue;
      std::unique_lock<std::mutex> lock(mutex_);
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return stopping_ || ready(); });
      sleepers_.fetch_sub(1);
      if (stopping_) return;
    }
  }

  // Waits a short while for the condition: the time between two operations of one step.
  template <class Condition>
  static bool spin(const Condition& condition) {
    const Clock::time_point end = Clock::now() + std::chrono::microseconds(50);
    do {
      for (int i = 0; i < 16; ++i) {
        if (condition()) return true;
        relax();
      }
    } while (Clock::now() < end);
    return false;
  }

  alignas(64) std::atomic<uint64_t> word_{0};
  alignas(64) std::atomic<uint64_t> done_{0};
  std::atomic<bool> caller_sleeps_{false};
  alignas(64) std::atomic<int> sleepers_{0};
  Call call_ = nullptr;
  void* context_ = nullptr;
  const int forks_;
  int threads_ = 1;
  bool stopping_ = false;
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::vector<std::thread> workers_;
  std::vector<Scratch> scratch_;
  Scratch common_;
};

}  // namespace pagedd
