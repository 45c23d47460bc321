use crate::bls::{point::G1Affine, weights::Weights};
use rand::seq::SliceRandom;
use std::time::Instant;
fn best(mut f: impl FnMut()) -> f64 { (0..40).map(|_| { let s=Instant::now(); f(); s.elapsed().as_secs_f64()*1e6 }).fold(1e9,f64::min) }
#[test]
fn tune() {
    let mut rng = super::rng(1);
    for n in [4u32,10,20,50,100,100,100,100,120,130,140,150,200,400,1024] {
        let q=(n-(n-1)/3) as usize;
        let mut all: Vec<u32>=(0..n).collect();
        let pts: Vec<_>=(0..q).map(|i| G1Affine::hash(&(i as u32).to_le_bytes(),b"T")).collect();
        let mut a=0.0; let mut b=0.0; let k=5;
        let mut info=String::new();
        for _ in 0..k { all.shuffle(&mut rng); let mut s=all[..q].to_vec(); s.sort();
          a+=best(|| { std::hint::black_box(Weights::new(&s)); });
          let w=Weights::new(&s); info=w.info();
          b+=best(|| { std::hint::black_box(w.combine(&pts)); }); }
        let x=crate::bls::point::Fp::ONE; let mut y=x; let m=best(|| { for _ in 0..1000 { y.multiply(&x);} });
        let pl=crate::bls::sum::Plan::new(&vec![crate::bls::sum::Integer::from_u128(1);1]); let _=pl;
        println!("mul {:.1} ns", m); println!("n={n} q={q} weights {:.1} combine {:.1} {info}", a/k as f64,b/k as f64);
    }
}
