;; The loops over all parameters: AdamW and the squared norm of the gradient.
;;
;; Weights, gradients and the two moments are four vectors of the same layout, each in a memory of its own, so that one
;; call covers any range of the model. Each vector starts at another offset (see `vectors.ts`): memories lie at equal
;; distances, and four streams that differ only in high address bits chase each other out of the first-level cache
;; (205 ms instead of 35 ms for 25.8 million parameters). `npm run kernels` compiles this to `kernels.wasm.ts`.
(module
  (import "memory" "weight" (memory $weight 0 65536 shared))
  (import "memory" "grad" (memory $grad 0 65536 shared))
  (import "memory" "first" (memory $first 0 65536 shared))
  (import "memory" "second" (memory $second 0 65536 shared))

  ;; One step of torch.optim.AdamW on the bytes [$at, $end), a multiple of 16 long:
  ;;   g = grad * clip;  m += (g - m) (1 - beta1);  v = v beta2 + g² (1 - beta2)
  ;;   weight = weight (1 - lr weight_decay) - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
  (func (export "adamw")
    (param $at i32) (param $end i32)
    (param $clip f32)          ;; what the gradient is scaled by first
    (param $decay f32)         ;; 1 - lr * weight_decay
    (param $new1 f32)          ;; 1 - beta1
    (param $beta2 f32)
    (param $new2 f32)          ;; 1 - beta2
    (param $step f32)          ;; lr / (1 - beta1^t)
    (param $root f32)          ;; sqrt(1 - beta2^t)
    (param $eps f32)
    (local $g v128) (local $m v128) (local $v v128) (local $w v128)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $g (f32x4.mul (v128.load $grad offset=69888 (local.get $at)) (f32x4.splat (local.get $clip))))
        (local.set $m (v128.load $first offset=139776 (local.get $at)))
        (local.set $v (v128.load $second offset=209664 (local.get $at)))
        (local.set $w (v128.load $weight (local.get $at)))
        (local.set $m
          (f32x4.add (local.get $m)
            (f32x4.mul (f32x4.sub (local.get $g) (local.get $m)) (f32x4.splat (local.get $new1)))))
        (local.set $v
          (f32x4.add
            (f32x4.mul (local.get $v) (f32x4.splat (local.get $beta2)))
            (f32x4.mul (f32x4.mul (local.get $g) (local.get $g)) (f32x4.splat (local.get $new2)))))
        (local.set $w
          (f32x4.sub
            (f32x4.mul (local.get $w) (f32x4.splat (local.get $decay)))
            (f32x4.div
              (f32x4.mul (f32x4.splat (local.get $step)) (local.get $m))
              (f32x4.add
                (f32x4.div (f32x4.sqrt (local.get $v)) (f32x4.splat (local.get $root)))
                (f32x4.splat (local.get $eps))))))
        (v128.store $first offset=139776 (local.get $at) (local.get $m))
        (v128.store $second offset=209664 (local.get $at) (local.get $v))
        (v128.store $weight (local.get $at) (local.get $w))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br $next))))

  ;; The sum of squares of the gradient's bytes [$at, $end), in double precision.
  (func (export "sumSquares") (param $at i32) (param $end i32) (result f64)
    (local $x v128) (local $low v128) (local $high v128) (local $part v128)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $x (v128.load $grad offset=69888 (local.get $at)))
        (local.set $part (f64x2.promote_low_f32x4 (local.get $x)))
        (local.set $low (f64x2.add (local.get $low) (f64x2.mul (local.get $part) (local.get $part))))
        (local.set $part
          (f64x2.promote_low_f32x4
            (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7 (local.get $x) (local.get $x))))
        (local.set $high (f64x2.add (local.get $high) (f64x2.mul (local.get $part) (local.get $part))))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br $next)))
    (local.set $low (f64x2.add (local.get $low) (local.get $high)))
    (f64.add (f64x2.extract_lane 0 (local.get $low)) (f64x2.extract_lane 1 (local.get $low))))
)
